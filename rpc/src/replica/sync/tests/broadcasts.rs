//! What is proven by what a leader of release 8.5 broadcasts: scripted broadcasters that are quiet, held up, or late.

use super::release85::{follow85, prove_by};
use super::*;
use tonic::Status;

const KEEPALIVE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(100);

/// A leader that answers probes at once and broadcasts when the test says so.
struct Leader {
    stream: Stream,
    head: u64,
    /// The streams of probes, which hear the broadcast too.
    ears: Vec<Stream>,
}

impl Leader {
    /// Followed, with the index at 500.
    async fn of(world: &World) -> Self {
        world
            .shared
            .thresholds
            .set_broadcast_max_age(Some(Duration::from_secs(30)));
        Self {
            stream: follow85(world, 500).await,
            head: 500,
            ears: Vec::new(),
        }
    }

    /// Answers the probes that have come.
    async fn answer(&mut self, world: &World) {
        world.quiet().await;
        while let Some(probe) = world.pd.try_accept(Lane::Calls) {
            let missing = self.head - probe.start_index();
            probe.send(frame(
                probe.start_index(),
                regions(vec![3; missing as usize]),
            ));
            self.ears.push(probe);
        }
        world.quiet().await;
        self.ears.retain(|ear| !ear.is_cancelled());
    }

    fn broadcast(&mut self, records: usize) {
        let regions = regions(vec![3; records]);
        for stream in self.ears.iter().chain([&self.stream]) {
            stream.send(frame(self.head, regions.clone()));
        }
        self.head += records as u64;
    }

    /// Lets time pass and answers probes, and looks at the gate all the while.
    async fn pass(&mut self, world: &World, time: Duration, mut look: impl FnMut(&World)) {
        let until = world.shared.clock.now().saturating_add(time);
        while world.shared.clock.now() < until {
            pass(STEP).await;
            self.answer(world).await;
            look(world);
        }
    }

    /// A quiet leader for as many keepalives.
    async fn keep_alive(&mut self, world: &World, times: usize, mut look: impl FnMut(&World)) {
        for _ in 0..times {
            self.pass(world, KEEPALIVE, &mut look).await;
            self.broadcast(0);
            self.answer(world).await;
            look(world);
        }
    }
}

fn proven_at(world: &World) -> Option<tidegate_core::Moment> {
    world.shared.gate.view().proven_at
}

fn age(world: &World) -> Duration {
    let at = proven_at(world).expect("proven");
    world.shared.clock.now().saturating_since(at)
}

fn is_open(world: &World) {
    assert!(world.serves(), "{:?}", world.shared.gate.view());
}

fn no_later_than(bound: Option<tidegate_core::Moment>) -> impl FnMut(&World) {
    move |world| assert!(proven_at(world) <= bound, "{:?}", proven_at(world))
}

#[tokio::test(start_paused = true)]
async fn g3_a_quiet_leader_keeps_the_gate_open_for_minutes() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    // The frame that the stream began with was the first keepalive.
    leader.keep_alive(&world, 1, |_| {}).await;
    let mut oldest = Duration::ZERO;
    let look = |world: &World| {
        is_open(world);
        oldest = oldest.max(age(world));
    };
    leader.keep_alive(&world, 60, look).await;
    assert!(
        (Duration::from_secs(20)..Duration::from_secs(24)).contains(&oldest),
        "two keepalives and a probe's interval: {oldest:?}"
    );
    let open = leader.ears.len();
    assert!(open <= 2, "{open} streams beside the stream");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_one_keepalive_proves_nothing_and_the_next_what_was_before_it() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 2, |_| {}).await;
    leader.pass(&world, KEEPALIVE, |_| {}).await;
    let before = proven_at(&world);
    let heard = world.shared.clock.now();
    leader.broadcast(0);
    leader.answer(&world).await;
    let first = proven_at(&world);
    assert!(first > before && first < Some(heard));
    assert!(
        heard.saturating_since(first.expect("proven")) >= KEEPALIVE,
        "of the time before the one before"
    );
    leader
        .pass(&world, KEEPALIVE - STEP, no_later_than(first))
        .await;
    leader.broadcast(0);
    leader.answer(&world).await;
    let second = proven_at(&world).expect("proven");
    assert!(second < heard && heard.saturating_since(second) <= Duration::from_secs(3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_a_keepalive_that_was_long_under_way_proves_nothing_of_that_time() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 3, |_| {}).await;
    let proven = proven_at(&world);
    let last = world.shared.clock.now();
    // Made up now, and from here on the broadcaster stands still; this one is on its way for 8 s.
    leader.pass(&world, Duration::from_secs(8), |_| {}).await;
    leader.stream.send(frame(500, vec![]));
    leader
        .pass(&world, Duration::from_secs(40), no_later_than(proven))
        .await;
    assert!(!world.serves(), "since {last:?} nobody has said anything");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_a_keepalive_that_overtakes_what_waits_does_not_hide_it() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 3, |_| {}).await;
    // This keepalive takes its time: a fellow follower does not read. A change comes, and waits.
    leader.pass(&world, Duration::from_secs(1), |_| {}).await;
    let changed = world.shared.clock.now();
    let until = no_later_than(Some(changed));
    leader.pass(&world, Duration::from_secs(9), until).await;
    // The tick wins once, and this one is held up as well.
    leader.broadcast(0);
    leader.answer(&world).await;
    assert!(proven_at(&world) < Some(changed));
    leader
        .pass(&world, KEEPALIVE, no_later_than(Some(changed)))
        .await;
    let answered = world.shared.clock.now();
    leader.broadcast(1);
    leader.answer(&world).await;
    world
        .until("the record proves what was asked before it", || {
            proven_at(&world) > Some(changed)
        })
        .await;
    assert!(proven_at(&world) <= Some(answered));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_what_waits_behind_a_slow_fellow_is_not_taken_for_nothing() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 2, |_| {}).await;
    leader.pass(&world, Duration::from_secs(2), |_| {}).await;
    let changed = world.shared.clock.now();
    // One broadcast after the other is held up, each with as much as one takes and more behind it.
    for _ in 0..3 {
        leader.broadcast(1_001);
        leader
            .pass(&world, Duration::from_secs(9), no_later_than(Some(changed)))
            .await;
    }
    assert!(!world.serves());
    leader.broadcast(7);
    leader.answer(&world).await;
    world
        .until("all that waited has come", || world.serves())
        .await;
    assert!(age(&world) <= Duration::from_secs(3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_the_gate_stays_open_when_changes_stop_and_when_they_come_and_go() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.pass(&world, Duration::from_secs(1), |_| {}).await;
    leader.broadcast(1);
    leader.answer(&world).await;
    world.until("it is proven", || world.serves()).await;
    // The ticks go on whatever else is broadcast.
    let mut tick = Duration::ZERO;
    for busy in [20, 0, 3, 0, 1, 0, 0, 40, 0, 0, 0] {
        for second in 0..35 {
            if second < busy {
                leader.broadcast(1 + second);
            }
            leader.pass(&world, Duration::from_secs(1), is_open).await;
            tick += Duration::from_secs(1);
            if tick >= KEEPALIVE {
                tick = Duration::ZERO;
                leader.broadcast(0);
                leader.answer(&world).await;
            }
        }
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_bursts_of_full_batches_leave_the_gate_open() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 1, |_| {}).await;
    for _ in 0..12 {
        for records in [1_001, 1_001, 1_001, 400] {
            leader.broadcast(records);
            leader.answer(&world).await;
        }
        leader.pass(&world, Duration::from_secs(5), is_open).await;
        // As many as fit, and nothing behind them.
        leader.broadcast(1_001);
        leader.pass(&world, Duration::from_secs(5), is_open).await;
        leader.broadcast(0);
        leader.answer(&world).await;
    }
    assert!(age(&world) < Duration::from_secs(15));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_what_one_session_has_heard_proves_nothing_in_the_next() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 1, |_| {}).await;
    leader.pass(&world, KEEPALIVE, |_| {}).await;
    leader.broadcast(0);
    leader.answer(&world).await;
    let proven = proven_at(&world);
    leader.stream.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 500);
    again.send(frame(500, vec![]));
    leader.stream = again;
    leader.ears.clear();
    leader.pass(&world, KEEPALIVE, no_later_than(proven)).await;
    leader.broadcast(0);
    leader.answer(&world).await;
    assert_eq!(proven_at(&world), proven, "the first of this session");
    leader.pass(&world, KEEPALIVE, no_later_than(proven)).await;
    leader.broadcast(0);
    leader.answer(&world).await;
    assert!(proven_at(&world) > proven);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_probes_do_not_replace_a_missing_keepalive() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    leader.keep_alive(&world, 3, |_| {}).await;
    let proven = proven_at(&world);
    let sent = world.shared.counters.probes_sent.get();
    // The broadcaster is held up from here on, and the leader answers probes as if nothing had happened.
    leader
        .pass(&world, Duration::from_secs(14), no_later_than(proven))
        .await;
    assert!(world.shared.counters.probes_sent.get() >= sent + 4);
    assert_eq!(proven_at(&world), proven);
    leader.pass(&world, KEEPALIVE, no_later_than(proven)).await;
    assert!(!world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_be_either_is_asked_and_masters_answers_count_at_once() {
    let world = World::start();
    let broadcasts = Duration::from_secs(30);
    world
        .shared
        .thresholds
        .set_broadcast_max_age(Some(broadcasts));
    // As many regions as records: the same bytes as the first records of a release 8.5.
    let stream = world.stream().await;
    let mut whole = regions(1..4);
    whole[0].start_key = Default::default();
    whole[2].end_key = Default::default();
    stream.send(frame(0, whole.clone()));
    stream.send(frame(3, vec![]));
    world
        .until("it answers", || world.shared.gate.applied() == 3)
        .await;
    world.prove().await;
    assert!(!world.serves(), "it may be a release 8.5");
    assert_eq!(world.shared.thresholds.get().max_age, broadcasts);
    let who = world.pd.try_who().expect("asked");
    assert_eq!(who.start_index(), u64::MAX);
    who.send(frame(0, whole));
    world.until("master answers", || world.serves()).await;
    assert!(who.is_cancelled());
    // At once, not with the next probe: no time has passed.
    let usual = Thresholds::default().max_age;
    world
        .until("master's bound holds", || {
            world.shared.thresholds.get().max_age == usual
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_of_release_85_is_silent_when_it_is_asked_who_it_is() {
    let world = World::start();
    let mut leader = Leader::of(&world).await;
    assert!(
        world.pd.try_who().is_none(),
        "the stream's beginning has shown it"
    );
    leader.stream.fail(Status::unavailable("lost"));
    leader.stream = world.stream().await;
    leader.stream.send(frame(500, vec![]));
    leader.answer(&world).await;
    let who = world.pd.try_who().expect("asked");
    leader.pass(&world, KEEPALIVE, |_| {}).await;
    who.send(frame(500, vec![]));
    leader.answer(&world).await;
    assert!(who.is_cancelled());
    let proven = proven_at(&world);
    leader
        .pass(&world, Duration::from_secs(4), no_later_than(proven))
        .await;
    assert_eq!(world.pd.try_who().map(|who| who.start_index()), None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_records_from_the_answered_head_on_prove_the_answer_and_earlier_ones_do_not() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    let heard = world.shared.clock.now();
    while world.shared.clock.now().saturating_since(heard) < Duration::from_secs(8) {
        pass(Duration::from_millis(100)).await;
        if let Some(probe) = world.pd.try_accept(Lane::Calls) {
            probe.send(frame(500, vec![]));
        }
    }
    let probe = world.probe().await;
    let sent = world.shared.clock.now();
    // Records that the leader had taken from its queue before it answered, however late they come.
    probe.send(frame(500, regions([1, 2])));
    world.quiet().await;
    stream.send(frame(500, regions([1, 2])));
    world
        .until("they are applied", || world.shared.gate.applied() == 502)
        .await;
    world.quiet().await;
    assert!(world.shared.gate.view().proven_at < Some(sent));
    // A full frame: more waits.
    stream.send(frame(502, regions(vec![2; 1_001])));
    world.quiet().await;
    assert!(world.shared.gate.view().proven_at < Some(sent));
    stream.send(frame(1_503, regions([3])));
    world
        .until("the answer is a proof", || {
            world.shared.gate.view().proven_at == Some(sent)
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_records_prove_nothing_before_they_are_applied() {
    // The first frame, the copy and its end.
    let (sluice, hooks) = sluice(3);
    let world = World::start_with(hooks);
    let stream = follow85(&world, 500).await;
    let probe = world.probe().await;
    let sent = world.shared.clock.now();
    probe.send(frame(500, vec![]));
    world.quiet().await;
    // Both waited when the probe was answered.
    stream.send(frame(500, regions([1, 2])));
    world.quiet().await;
    assert_eq!(world.shared.gate.applied(), 500);
    assert_eq!(proven_at(&world), None);
    sluice.0.add_permits(1);
    world
        .until("they are applied", || proven_at(&world) == Some(sent))
        .await;
    assert_eq!(world.shared.gate.applied(), 502);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_probe_can_shut_the_gate() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    prove_by(&world, &stream, 500).await;
    assert!(world.serves());
    world.shared.thresholds.set(Thresholds {
        index_threshold: 3,
        ..Thresholds::default()
    });
    world
        .probe()
        .await
        .send(frame(501, regions([1, 2, 3, 1, 2])));
    world
        .until("the lag is known", || world.lag() == Lag::Known(5))
        .await;
    assert!(!world.serves());
    world.end().await;
}
