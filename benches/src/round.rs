//! Rounds: every lane runs once in each, and the lane that begins moves on by one.
//!
//! A machine's speed drifts, by its clock as well as by its neighbours. Lanes that run one after
//! the other within a second suffer the same drift, and a lane that runs first in one round runs
//! later in the next. The first round warms up and is not counted; of the others the median is
//! taken, lane by lane.
//!
//! What one lane reads drives out of the caches what the others have there. So where one thread works
//! alone, each lane does an eighth of its operations before its clock starts.

use std::hint::black_box;
use std::iter::Sum;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::processor::Processor;

/// What a lane does before its clock starts, and what it does then.
pub fn lead_in<T>(mut operations: Vec<T>) -> (Vec<T>, Vec<T>) {
    let measured = operations.split_off(operations.len() / 8);
    (operations, measured)
}

/// One contender's way to do one operation.
pub struct Lane<'a> {
    contender: &'static str,
    run: Box<dyn FnMut(u64) -> Timing + 'a>,
}

impl<'a> Lane<'a> {
    /// A lane that `run` measures; it is given the number of the round, from 0.
    pub fn new(contender: &'static str, run: impl FnMut(u64) -> Timing + 'a) -> Self {
        Self {
            contender,
            run: Box::new(run),
        }
    }
}

impl std::fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("contender", &self.contender)
            .finish_non_exhaustive()
    }
}

/// How long how many operations took.
#[derive(Copy, Clone, Debug)]
pub struct Timing {
    operations: usize,
    elapsed: Duration,
}

impl Timing {
    fn ns_per_op(self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.operations.max(1) as f64
    }
}

impl Sum for Timing {
    fn sum<I: Iterator<Item = Self>>(portions: I) -> Self {
        portions.fold(
            Self {
                operations: 0,
                elapsed: Duration::ZERO,
            },
            |sum, portion| Self {
                operations: sum.operations + portion.operations,
                elapsed: sum.elapsed + portion.elapsed,
            },
        )
    }
}

/// What a table row is about.
#[derive(Copy, Clone, Debug)]
pub struct Subject {
    /// Name of the operation.
    pub op: &'static str,
    /// Regions in the map; 0 where none is involved.
    pub regions: usize,
    /// Threads that do the operation at once.
    pub threads: usize,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub subject: Subject,
    /// Who did it.
    pub contender: &'static str,
    /// Median of the rounds, in nanoseconds for one operation of one thread.
    pub ns_per_op: f64,
    /// Fastest and slowest round.
    pub spread: (f64, f64),
}

/// Measures `operations` operations on this thread, by the processor time they take: what other
/// processes do with the processor meanwhile does not count.
///
/// Not for work that can sleep, whose waiting would not count either.
pub fn timed<R>(operations: usize, work: impl FnOnce() -> R) -> Timing {
    timed_as_done(|| {
        black_box(work());
        operations
    })
}

/// The same for work that says how many operations it has done.
pub fn timed_as_done(work: impl FnOnce() -> usize) -> Timing {
    let begin = processor_time();
    let operations = work();
    Timing {
        operations,
        elapsed: processor_time().saturating_sub(begin),
    }
}

/// Measures `operations` operations on this thread by the clock on the wall, waiting included.
pub fn timed_by_the_wall<R>(operations: usize, work: impl FnOnce() -> R) -> Timing {
    timed_by_the_wall_as_done(|| {
        black_box(work());
        operations
    })
}

/// The same for work that says how many operations it has done.
pub fn timed_by_the_wall_as_done(work: impl FnOnce() -> usize) -> Timing {
    let begin = now();
    let operations = work();
    Timing {
        operations,
        elapsed: begin.elapsed(),
    }
}

/// Does one piece of work after the other until all are done or `limit` has passed; `piece` says
/// how many operations one was. Returns the sum.
pub fn within<P>(
    limit: Duration,
    pieces: impl IntoIterator<Item = P>,
    mut piece: impl FnMut(P) -> usize,
) -> usize {
    let begin = now();
    let mut operations = 0;
    for next in pieces {
        operations += piece(next);
        if begin.elapsed() >= limit {
            break;
        }
    }
    operations
}

/// What `threads` threads measure that begin together, each on a processor of its own as far as
/// there are two: threads that take turns on one do not meet, and what they cost each other would
/// be hidden.
///
/// # Panics
/// If a thread panics.
pub fn together(threads: usize, timed: impl Fn(usize) -> Timing + Sync) -> Timing {
    let barrier = Barrier::new(threads);
    let one = |thread: usize| {
        let _bound = Processor::two()
            .into_iter()
            .nth(thread)
            .flatten()
            .map(Processor::bind);
        barrier.wait();
        timed(thread)
    };
    thread::scope(|scope| {
        let start = |thread| {
            let one = &one;
            scope.spawn(move || one(thread))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a measured thread"))
            .sum()
    })
}

/// Measures while `beside` runs over and over on a thread of its own, and on a processor of its own
/// if there is more than one: a scheduler that lets the two take turns would hide what they cost
/// each other.
pub fn timed_beside(beside: impl Fn() + Sync, measured: impl FnOnce() -> Timing) -> Timing {
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    let started = Barrier::new(2);
    let [ours, companions] = Processor::two();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _bound = companions.map(Processor::bind);
            started.wait();
            // Relaxed: nothing but the end of the loop depends on it.
            while !done.load(Ordering::Relaxed) {
                beside();
            }
        });
        let _bound = ours.map(Processor::bind);
        started.wait();
        let timing = measured();
        // Relaxed: see the loop above.
        done.store(true, Ordering::Relaxed);
        timing
    })
}

/// Runs every lane once a round, for a round of warming up and `rounds` that count.
#[must_use]
pub fn alternate(subject: Subject, rounds: u64, mut lanes: Vec<Lane<'_>>) -> Vec<Row> {
    let mut samples = vec![Vec::new(); lanes.len()];
    for round in 0..=rounds {
        for turn in 0..lanes.len() {
            let lane = (round as usize + turn) % lanes.len();
            let timing = (lanes[lane].run)(round);
            if round > 0 {
                samples[lane].push(timing.ns_per_op());
            }
        }
    }
    let row = |(lane, mut samples): (Lane<'_>, Vec<f64>)| {
        samples.sort_by(f64::total_cmp);
        Row {
            subject,
            contender: lane.contender,
            ns_per_op: samples[samples.len() / 2],
            spread: (samples[0], samples[samples.len() - 1]),
        }
    };
    lanes.into_iter().zip(samples).map(row).collect()
}

/// What this thread has had of the processor so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[expect(clippy::disallowed_methods, reason = "read to measure, not to decide")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const SUBJECT: Subject = Subject {
        op: "op",
        regions: 1,
        threads: 1,
    };

    fn took(nanos: u64) -> Timing {
        Timing {
            operations: 10,
            elapsed: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn the_first_round_does_not_count_and_the_median_does() {
        let lane = Lane::new("one", |round| took([9_000, 30, 10, 20][round as usize]));
        let rows = alternate(SUBJECT, 3, vec![lane]);
        assert_eq!(rows[0].ns_per_op, 2.0);
        assert_eq!(rows[0].spread, (1.0, 3.0));
    }

    #[test]
    fn the_order_turns_from_round_to_round() {
        let order = RefCell::new(String::new());
        let lane = |name: &'static str| {
            Lane::new(name, |_| {
                order.borrow_mut().push_str(name);
                took(1)
            })
        };
        let _ = alternate(SUBJECT, 2, vec![lane("a"), lane("b"), lane("c")]);
        assert_eq!(&*order.borrow(), "abcbcacab");
    }

    #[test]
    fn what_takes_too_long_ends_with_the_piece_that_it_was_at() {
        let all = [3, 4, 5];
        assert_eq!(within(Duration::MAX, all, |piece| piece), 12);
        assert_eq!(within(Duration::ZERO, all, |piece| piece), 3);
    }

    #[test]
    fn threads_work_each_and_a_companion_runs_meanwhile() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (worked, beside) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let timing = timed_beside(
            || {
                beside.fetch_add(1, Ordering::Relaxed);
            },
            || {
                while beside.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                together(3, |thread| {
                    timed(2, || worked.fetch_add(1 << (8 * thread), Ordering::Relaxed))
                })
            },
        );
        assert_eq!(worked.into_inner(), 0x01_01_01);
        assert_eq!(timing.operations, 6);
    }
}
