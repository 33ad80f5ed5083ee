//! What a leader of release 8.5 does not send on the stream, fetched beside it: a copy of its map as it sends it for
//! index 0, or all its regions by scans.
//!
//! The copy comes on a stream under a name of its own, which is left as soon as the copy has ended: from then on the
//! leader broadcasts to it, too. Both are taken as fast as they are applied, and no faster; neither holds up the stream.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::lookup::fit;
use crate::pd::{FrameSource, Lane, PdTransport, within};
use crate::proto::pdpb::SyncRegionResponse;

use super::context::Context;
use super::ending::Ending;
use super::follower::{Fetched, Want};
use super::frame::{Copied, Copying, Shape};

/// Fetches what is wanted.
pub(super) struct Fetcher<T> {
    pub(super) context: Arc<Context<T>>,
    pub(super) url: String,
    pub(super) cluster_id: u64,
    pub(super) want: watch::Receiver<Want>,
    pub(super) fetched: mpsc::Sender<Fetched>,
}

/// The applier has gone away, or the fetch has failed.
enum Stop {
    Gone,
    Ending(Ending),
}

impl From<Ending> for Stop {
    fn from(ending: Ending) -> Self {
        Self::Ending(ending)
    }
}

impl<T: PdTransport> Fetcher<T> {
    /// Fetches until the session is given up; sends the reason to `endings` if something cannot be had.
    pub(super) async fn run(mut self, endings: mpsc::Sender<Ending>, give_up: CancellationToken) {
        let stop = tokio::select! {
            biased;
            () = give_up.cancelled() => return,
            stop = self.serve() => stop,
        };
        if let Stop::Ending(ending) = stop {
            // Only the first reason counts; there may be nobody left to hear a later one.
            let _ = endings.try_send(ending);
        }
    }

    async fn serve(&mut self) -> Stop {
        loop {
            if self.want.changed().await.is_err() {
                return Stop::Gone;
            }
            let want = *self.want.borrow_and_update();
            let fetched = match want {
                Want::Nothing => continue,
                Want::Copy => self.copy().await,
                Want::Scan => self.scan().await,
            };
            if let Err(stop) = fetched {
                return stop;
            }
            if self.fetched.send(Fetched::End).await.is_err() {
                return Stop::Gone;
            }
        }
    }

    async fn copy(&self) -> Result<(), Stop> {
        let Context {
            shared,
            transport,
            config,
            ..
        } = &*self.context;
        let request = self.context.request(config.copy_name(), self.cluster_id, 0);
        let silence = shared.thresholds.get().time_threshold;
        let opened = transport.sync_regions(&self.url, Lane::Stream, request);
        let mut frames = within(silence, &self.url, opened)
            .await
            .map_err(Ending::Call)?;
        let mut copying = Copying::default();
        loop {
            let frame = within(silence, &self.url, frames.next_frame())
                .await
                .map_err(Ending::Call)?
                .ok_or(Ending::Closed)?;
            let at = shared.clock.now();
            shared.counters.frames.add(1);
            let shape = Shape::of(&frame, self.cluster_id);
            match copying.take(shape, config.batch_limit) {
                Copied::Ended => return Ok(()),
                Copied::Part { last } => {
                    self.pass(Fetched::Part {
                        frame,
                        asked_at: None,
                        at,
                    })
                    .await?;
                    if last {
                        return Ok(());
                    }
                }
                Copied::Error => {
                    let error = frame.header.and_then(|header| header.error);
                    let message = error.map_or_else(String::new, |error| error.message);
                    return Err(Ending::LeaderError(message).into());
                }
                Copied::Broken(what) => {
                    shared.counters.malformed.add(1);
                    return Err(Ending::Broken(what).into());
                }
            }
        }
    }

    async fn scan(&self) -> Result<(), Stop> {
        let Context {
            shared,
            transport,
            config,
            ..
        } = &*self.context;
        let limit = u32::try_from(config.batch_limit).unwrap_or(u32::MAX);
        let mut start = bytes::Bytes::new();
        loop {
            let asked_at = shared.clock.now();
            let asked = transport.scan_regions(&self.url, self.cluster_id, start.clone(), limit);
            let page = within(config.call_timeout, &self.url, asked)
                .await
                .map_err(Ending::Call)?;
            let end = match page.region_metas.last() {
                None => return Ok(()),
                Some(last) => last.end_key.clone(),
            };
            let regions = page.region_metas.iter();
            let found = regions.map(|it| (it.id, (&it.start_key[..], &it.end_key[..])));
            // So it moves on, too.
            fit::in_order(found, &[(&start[..], &[])], None)
                .map_err(|misfit| Ending::Broken(misfit.fault))?;
            let frame = SyncRegionResponse {
                regions: page.region_metas,
                region_leaders: page.leaders,
                ..SyncRegionResponse::default()
            };
            self.pass(Fetched::Part {
                frame,
                asked_at: Some(asked_at),
                at: shared.clock.now(),
            })
            .await?;
            if end.is_empty() {
                return Ok(());
            }
            start = end;
        }
    }

    async fn pass(&self, fetched: Fetched) -> Result<(), Stop> {
        self.fetched.send(fetched).await.map_err(|_| Stop::Gone)
    }
}
