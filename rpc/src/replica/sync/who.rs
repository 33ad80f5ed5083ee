//! Which dialect a leader speaks, asked where the stream has not shown it.
//!
//! A stream that goes on at its own index shows neither dialect, and a full sync shows none if its leader has as many
//! regions as records. Asked for an index beyond all, master begins a full sync at once; release 8.5 is silent until its
//! next broadcast. What it then says carries the index where it stands, or behind it; a frame that begins at 0, from a
//! leader that has recorded something in this term, is a snapshot.
//!
//! It is asked once a session, and only in doubt: master copies its map for the answer, of which nothing is taken but
//! the first frame.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::debug;

use crate::pd::{Dialect, FrameSource, Lane, PdTransport, within};

use super::context::Context;
use super::frame::{BEYOND_ALL, Shape};
use super::spoken::Spoken;
use super::staging::Feed;

/// Asks once the map answers, if it has not been shown by then. Never returns, so that it can stand beside what ends.
pub(super) async fn ask<T: PdTransport>(
    context: Arc<Context<T>>,
    url: String,
    cluster_id: u64,
    spoken: Arc<Spoken>,
    mut feed: watch::Receiver<Feed>,
) {
    if feed.wait_for(|feed| *feed == Feed::Answering).await.is_ok() {
        // The bound that goes with the dialect holds from the moment that the map's proofs are this leader's, not from
        // the next probe on: who believes in release 8.5 for longer serves what master's bound forbids.
        let thresholds = &context.shared.thresholds;
        thresholds.set_dialect(spoken.dialect());
        if !spoken.is_known()
            && context.shared.gate.view().head > 0
            && begins_a_snapshot(&context, &url, cluster_id).await
        {
            debug!("the leader speaks master's dialect");
            spoken.shown_master();
            context.shared.note_dialect(Dialect::Master);
        }
        spoken.master().await;
        thresholds.set_dialect(Dialect::Master);
    }
    pending().await
}

async fn begins_a_snapshot<T: PdTransport>(
    context: &Context<T>,
    url: &str,
    cluster_id: u64,
) -> bool {
    let request = context.request(context.config.who_name(), cluster_id, BEYOND_ALL);
    let patience = context.shared.thresholds.get().time_threshold;
    let asked = async {
        let opened = context.transport.sync_regions(url, Lane::Calls, request);
        opened.await?.next_frame().await
    };
    match within(patience, url, asked).await {
        Ok(Some(frame)) => {
            let shape = Shape::of(&frame, cluster_id);
            let counts = !shape.error && !shape.foreign && shape.unsound.is_none();
            counts && shape.start_index == 0 && shape.len > 0
        }
        Ok(None) => false,
        Err(error) => {
            debug!(%error, "the leader's dialect was not told");
            false
        }
    }
}
