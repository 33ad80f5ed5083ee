//! What every part of the following side has at hand.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

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

/// What was logged last: a state is worth a line when it is another one.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<&'static str>);

impl Notes {
    /// Whether `state` differs from the last one that was asked about.
    pub(super) fn is_news(&self, state: &'static str) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, state) != state
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
}
