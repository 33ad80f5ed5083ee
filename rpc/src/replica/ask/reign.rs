//! Whether the leader has led since a question was sent: a look at the leader key, after the answer.
//!
//! A create-revision is new for each reign. A look that is sent after an answer and finds the term of the question says
//! that the reign has lasted without a break, the moment of the answer included. Looks are shared: who waits while one
//! is under way needs the next, and so do all who wait with it.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{AskCounters, LeaderCalls};
use crate::pd::Term;

/// A reign to be vouched for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reign {
    pub(super) url: String,
    pub(super) cluster_id: u64,
    pub(super) term: Term,
}

/// The last look.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Option<Look>>);

#[derive(Debug)]
struct Look {
    reign: Reign,
    sent_at: Instant,
    leads: bool,
}

impl Looks {
    /// Whether `reign` lasted until `answered_at`, at least.
    pub(super) async fn stands<T: LeaderCalls>(
        &self,
        transport: &T,
        reign: &Reign,
        answered_at: Instant,
        deadline: Duration,
        counters: &AskCounters,
    ) -> bool {
        let mut last = self.0.lock().await;
        if let Some(look) = &*last
            && look.reign == *reign
            // At the very same moment either may have been first.
            && (look.sent_at > answered_at || (!look.leads && look.sent_at == answered_at))
        {
            return look.leads;
        }
        counters.looks.add(1);
        let sent_at = Instant::now();
        let look = transport.leads(&reign.url, reign.cluster_id, reign.term);
        let leads = timeout(deadline, look).await.unwrap_or(false);
        *last = Some(Look {
            reign: reign.clone(),
            sent_at,
            leads,
        });
        leads
    }
}
