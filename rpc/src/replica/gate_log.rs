//! One line in the log for each time that the gate opens or shuts.
//!
//! The gate itself only answers when it is asked, and time alone shuts it; so it is asked a few times a second. An
//! opening shorter than that may go without a line; the counters have what it refused. Before the first opening it is asked
//! more often: how long a start takes is told from that.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gate::RefuseReason;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::http::Pages;

const INTERVAL: Duration = Duration::from_millis(200);
/// The same before the first opening.
const STARTING: Duration = Duration::from_millis(10);

/// What was logged last. A gate is shut at the start.
#[derive(Debug, Default)]
struct Noted {
    open: bool,
}

/// What is worth a line.
#[derive(Debug, Eq, PartialEq)]
enum News {
    Opened,
    Shut(RefuseReason),
}

impl Noted {
    fn news(&mut self, shut: Option<RefuseReason>) -> Option<News> {
        let was_open = std::mem::replace(&mut self.open, shut.is_none());
        match (was_open, shut) {
            (false, None) => Some(News::Opened),
            (true, Some(reason)) => Some(News::Shut(reason)),
            _ => None,
        }
    }
}

/// Logs until `stop`.
pub(super) async fn keep(pages: Arc<Pages>, stop: CancellationToken) {
    let mut noted = Noted::default();
    let mut ticks = interval(STARTING);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(news) = noted.news(pages.serving.shut()) else {
            continue;
        };
        let shared = &pages.serving.shared;
        if news == News::Opened && shared.ready().is_none() {
            let ready = shared.note_ready();
            let ready_after_ms = u64::try_from(ready.after.as_millis()).unwrap_or(u64::MAX);
            info!(
                ready_after_ms,
                start = ready.start(),
                "ready: the map is proven to be fresh for the first time"
            );
            ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        }
        let status = pages.read();
        let (age_ms, lag) = (status.age_ms, status.lag);
        match news {
            News::Opened => info!(
                age_ms,
                lag,
                regions = status.regions,
                "the gate is open: lookups are answered from the map"
            ),
            News::Shut(reason) => {
                let what = if status.reading_through {
                    "the PD leader is asked for what lookups want"
                } else {
                    "lookups are refused, and clients go to the PD leader"
                };
                warn!(
                    reason = reason.as_str(),
                    age_ms,
                    lag,
                    state = status.state.as_str(),
                    "the gate is shut: {what}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_and_a_shutting_are_news_once_each() {
        let mut noted = Noted::default();
        let age = Some(RefuseReason::Age);
        let silence = Some(RefuseReason::Silence);
        let seen = [age, None, None, age, silence, None];
        assert_eq!(
            seen.map(|shut| noted.news(shut)),
            [
                None,
                Some(News::Opened),
                None,
                Some(News::Shut(RefuseReason::Age)),
                None,
                Some(News::Opened),
            ]
        );
    }
}
