//! What every part of the following side has at hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pd::Term;
use crate::pd::told::CALLER;
use crate::proto::pdpb::{Member, RequestHeader, SyncRegionRequest};
use crate::replica::hooks::ApplyLayer;
use crate::replica::state::Shared;

use super::config::SyncConfig;

pub(super) struct Context<T> {
    pub(super) shared: Arc<Shared>,
    pub(super) transport: Arc<T>,
    pub(super) config: SyncConfig,
    pub(super) layer: Option<Arc<dyn ApplyLayer>>,
    pub(super) notes: Notes,
    /// Ends everything.
    pub(super) stop: CancellationToken,
}

impl<T> Context<T> {
    /// The one request of a sync stream.
    pub(super) fn request(
        &self,
        name: String,
        cluster_id: u64,
        start_index: u64,
    ) -> SyncRegionRequest {
        SyncRegionRequest {
            header: Some(RequestHeader {
                cluster_id,
                ..RequestHeader::default()
            }),
            member: Some(Member {
                name,
                // A leader that finds none here stops working.
                client_urls: vec![self.config.advertise_url().to_owned()],
                ..Member::default()
            }),
            start_index,
        }
    }
}

/// Says in a request to a replica of what term its index is.
pub(super) fn of_term(mut request: SyncRegionRequest, term: Option<Term>) -> SyncRegionRequest {
    if let (Some(header), Some(term)) = (&mut request.header, term) {
        CALLER.clone_into(&mut header.caller_component);
        header.caller_id = term.create_revision().to_string();
    }
    request
}

/// How often a state that lasts is worth another line.
const REMIND: Duration = Duration::from_secs(60);

/// What was logged last, and when: a state is worth a line when it is another one.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Option<(&'static str, Instant)>>);

impl Notes {
    /// Whether `state` differs from the last one that was asked about.
    pub(super) fn is_news(&self, state: &'static str) -> bool {
        self.note(state, None)
    }

    /// The same, and once more for each minute that it lasts.
    pub(super) fn is_news_or_due(&self, state: &'static str) -> bool {
        self.note(state, Some(REMIND))
    }

    fn note(&self, state: &'static str, remind: Option<Duration>) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worth = last.is_none_or(|(noted, at)| {
            noted != state || remind.is_some_and(|remind| now.duration_since(at) >= remind)
        });
        if worth {
            *last = Some((state, now));
        }
        worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_news_once_until_it_changes() {
        let notes = Notes::default();
        let seen = ["no leader", "no leader", "following", "no leader"];
        assert_eq!(
            seen.map(|state| notes.is_news(state)),
            [true, false, true, true]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_that_lasts_is_told_once_a_minute() {
        let notes = Notes::default();
        let mut told = 0;
        for _ in 0..125 {
            told += u32::from(notes.is_news_or_due("no leader"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(told, 3);
    }
}
