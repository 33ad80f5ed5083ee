//! Who leads, as PD's leader key says.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::pd::{CallError, LeaderKey, PdTransport, within};

use super::context::Context;

/// Reads PD's leader key at the leader, which is at `url`. If that has left a question `unanswered` a moment ago, any
/// other member's word counts as well: each reads what the majority has, so they tell at once when another leads.
pub(super) async fn leader_key<T: PdTransport>(
    context: &Arc<Context<T>>,
    url: &str,
    cluster_id: u64,
    unanswered: bool,
) -> Result<Option<LeaderKey>, CallError> {
    let mut urls = vec![url.to_owned()];
    if unanswered && let Some(pd) = context.shared.pd() {
        let members = pd.members.iter();
        let others = members.filter_map(|member| member.client_urls.first());
        urls.extend(others.filter(|other| *other != url).cloned());
    }
    let deadline = context.config.call_timeout;
    let mut reads = JoinSet::new();
    for url in urls {
        let context = Arc::clone(context);
        reads.spawn(async move {
            let read = context.transport.leader_key(&url, cluster_id);
            within(deadline, &url, read).await
        });
    }
    let mut last = CallError::Deadline {
        url: url.to_owned(),
        after: deadline,
    };
    while let Some(read) = reads.join_next().await {
        match read {
            Ok(Ok(key)) => return Ok(key),
            Ok(Err(error)) => last = error,
            // A read that panicked is one that failed.
            Err(_) => {}
        }
    }
    Err(last)
}
