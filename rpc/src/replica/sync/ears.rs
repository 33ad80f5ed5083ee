//! Streams of probes that are left open until they hear what is broadcast next.
//!
//! Two at most: the newest may not be bound yet when a broadcast is made, the one before it is. What they hear ends
//! them, so that under load none is open for long.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use tidegate_core::Moment;
use tidegate_core::clock::Clock;
use tokio::task::{AbortHandle, JoinSet};

use crate::pd::FrameSource;

use super::frame::Shape;
use super::proof::Echo;

const MOST: usize = 2;

/// The streams; they end with this.
#[derive(Debug, Default)]
pub(super) struct Ears {
    listening: JoinSet<Option<Echo>>,
    open: VecDeque<AbortHandle>,
}

impl Ears {
    /// Listens to a stream that was opened at `opened_at`, before which the clock was read, and has been answered.
    pub(super) fn listen(
        &mut self,
        mut frames: impl FrameSource,
        cluster_id: u64,
        clock: Arc<dyn Clock>,
        generation: u64,
        opened_at: Moment,
    ) {
        while self.open.len() >= MOST {
            if let Some(oldest) = self.open.pop_front() {
                oldest.abort();
            }
        }
        let listen = async move {
            let frame = frames.next_frame().await.ok().flatten()?;
            let shape = Shape::of(&frame, cluster_id);
            let counts = !shape.error && !shape.foreign && shape.unsound.is_none();
            (counts && shape.len == 0).then(|| Echo {
                generation,
                opened_at,
                heard_at: clock.now(),
                head: shape.start_index,
            })
        };
        self.open.push_back(self.listening.spawn(listen));
    }

    /// The next broadcast that there is nothing new. Never returns while nobody listens. Cancel safe.
    pub(super) async fn heard(&mut self) -> Echo {
        while let Some(heard) = self.listening.join_next().await {
            // One that was closed, or has heard something else, has nothing to say.
            if let Ok(Some(echo)) = heard {
                return echo;
            }
        }
        pending().await
    }

    /// Leaves all of them.
    pub(super) fn close(&mut self) {
        self.open.clear();
        self.listening.abort_all();
    }
}
