//! The ledger against a model that keeps every state the map was ever in.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_core::{Key, KeyRange, Peer, PeerRole, Region, RegionEpoch};

use super::*;

const STEP: u64 = 10;
/// Keys are the letters from here on, so that regions collide often.
const LETTERS: u8 = 8;

/// The map after each change, kept whole.
struct Naive {
    states: Vec<(Stamp, BTreeMap<Key, Region>)>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    id: u64,
    start: u8,
    width: u8,
    version: u64,
    leader: u64,
}

fn moment(sequence: u64) -> Moment {
    Moment::from_nanos(1_000 + sequence * STEP)
}

fn letter(at: u8) -> Key {
    if at == 0 || at >= LETTERS {
        Key::EMPTY
    } else {
        Key::from(&[b'a' + at])
    }
}

impl Report {
    fn region(&self) -> Region {
        let end = (self.start + self.width).min(LETTERS);
        let range = KeyRange::new(letter(self.start), letter(end)).expect("a valid range");
        let peer = |id| Peer {
            id,
            store_id: id,
            role: PeerRole::Voter,
            is_witness: false,
        };
        Region::builder(self.id, range, RegionEpoch::new(1, self.version))
            .peers([peer(1), peer(2)])
            .leader(Some(peer(self.leader)))
            .build()
            .expect("a valid region")
    }
}

fn report() -> impl Strategy<Value = Report> {
    (1..6_u64, 0..LETTERS, 1..4_u8, 1..3_u64, 1..3_u64).prop_map(
        |(id, start, width, version, leader)| Report {
            id,
            start,
            width,
            version,
            leader,
        },
    )
}

impl Naive {
    fn new(first: &Region) -> Self {
        let at = Stamp {
            sequence: 0,
            at: moment(0),
        };
        Self {
            states: vec![(at, BTreeMap::from([(first.start().clone(), first.clone())]))],
        }
    }

    fn record(&mut self, region: &Region) {
        let (last, state) = self.states.last().expect("the first state");
        let mut state = state.clone();
        state.retain(|_, old| old.id() != region.id() && !old.range().overlaps(region.range()));
        state.insert(region.start().clone(), region.clone());
        let sequence = last.sequence + 1;
        self.states.push((
            Stamp {
                sequence,
                at: moment(sequence),
            },
            state,
        ));
    }

    fn holds(state: &BTreeMap<Key, Region>, claim: &Claim) -> bool {
        let containing = |key: &Key| state.values().find(|region| region.range().contains(key));
        let previous = |key: &Key| {
            let own = containing(key)?;
            state
                .values()
                .find(|region| region.range().is_followed_by(own.range()))
        };
        match claim {
            Claim::Holds(region) => state.values().any(|held| held == region),
            Claim::Precedes { region, key } => previous(key) == Some(region),
            Claim::Uncovered(key) => containing(key).is_none(),
            Claim::NoPrevious(key) => previous(key).is_none(),
            Claim::NoSuchId(id) => state.values().all(|region| region.id() != *id),
            Claim::Hole(range) => state.values().all(|region| !region.range().overlaps(range)),
        }
    }

    fn standing(&self, claim: &Claim) -> Standing {
        match self
            .states
            .iter()
            .rposition(|(_, state)| Self::holds(state, claim))
        {
            None => Standing::Never,
            Some(last) => self
                .states
                .get(last + 1)
                .map_or(Standing::Current, |(stamp, _)| Standing::Superseded(*stamp)),
        }
    }

    fn together(&self, claims: &[Claim]) -> bool {
        self.states
            .iter()
            .any(|(_, state)| claims.iter().all(|claim| Self::holds(state, claim)))
    }

    fn changes_between(&self, since: Stamp, sent: Moment) -> u64 {
        let made = |stamp: &Stamp| stamp.sequence >= since.sequence && stamp.at <= sent;
        self.states.iter().filter(|(stamp, _)| made(stamp)).count() as u64
    }
}

fn play(reports: &[Report], retention: Duration) -> (Ledger, Naive) {
    let first = Report {
        id: 1,
        start: 0,
        width: LETTERS,
        version: 1,
        leader: 1,
    }
    .region();
    let mut naive = Naive::new(&first);
    let mut ledger = Ledger::new([Arc::new(first)], moment(0), retention);
    for report in reports {
        let region = report.region();
        // A repetition of what is held is not a change, and the playground makes none.
        if naive
            .states
            .last()
            .expect("a state")
            .1
            .values()
            .any(|held| *held == region)
        {
            continue;
        }
        naive.record(&region);
        let at = moment(naive.states.len() as u64 - 1);
        ledger.record(Arc::new(region), at);
    }
    (ledger, naive)
}

/// Everything that can be said of these few keys and ids.
fn all_claims(naive: &Naive) -> Vec<Claim> {
    let mut regions: Vec<Region> = Vec::new();
    for (_, state) in &naive.states {
        for region in state.values() {
            if !regions.contains(region) {
                regions.push(region.clone());
            }
        }
    }
    regions.push(
        Report {
            id: 5,
            start: 0,
            width: 1,
            version: 9,
            leader: 1,
        }
        .region(),
    );
    let keys: Vec<Key> = (0..LETTERS)
        .flat_map(|at| [letter(at), Key::from(&[b'a' + at, b'5'])])
        .collect();
    let mut claims: Vec<Claim> = (1..7).map(Claim::NoSuchId).collect();
    for key in &keys {
        claims.extend([
            Claim::Uncovered(key.clone()),
            Claim::NoPrevious(key.clone()),
        ]);
        claims.extend(regions.iter().map(|region| Claim::Precedes {
            region: region.clone(),
            key: key.clone(),
        }));
        let ranges = keys
            .iter()
            .filter_map(|end| KeyRange::new(key.clone(), end.clone()).ok());
        claims.extend(ranges.map(Claim::Hole));
    }
    claims.extend(regions.into_iter().map(Claim::Holds));
    claims
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_claim_stands_as_in_the_full_history(reports in prop::collection::vec(report(), 0..24)) {
        let (ledger, naive) = play(&reports, Duration::from_secs(60));
        for claim in all_claims(&naive) {
            prop_assert_eq!(claim.standing(&ledger), naive.standing(&claim), "{:?}", claim);
        }
    }

    #[test]
    fn claims_were_true_together_as_in_the_full_history(
        reports in prop::collection::vec(report(), 0..24),
        picks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 2..4), 40),
    ) {
        let (ledger, naive) = play(&reports, Duration::from_secs(60));
        let claims = all_claims(&naive);
        for pick in picks {
            let picked: Vec<Claim> = pick.iter().map(|index| index.get(&claims).clone()).collect();
            let judged: Vec<_> = picked.iter().map(|claim| (claim.clone(), claim.standing(&ledger))).collect();
            if judged.iter().any(|(_, standing)| *standing == Standing::Never) {
                continue;
            }
            prop_assert_eq!(were_true_together(&ledger, &judged), naive.together(&picked), "{:?}", judged);
        }
    }

    #[test]
    fn an_age_and_its_changes_count_from_the_supersession(
        reports in prop::collection::vec(report(), 1..24),
        sent in 0..300_u64,
    ) {
        let (ledger, naive) = play(&reports, Duration::from_secs(60));
        let sent = Moment::from_nanos(1_000 + sent);
        for claim in all_claims(&naive).iter().filter(|claim| matches!(claim, Claim::Holds(_))) {
            let (Claim::Holds(region), Standing::Superseded(stamp)) = (claim, naive.standing(claim)) else { continue };
            let question = Question::ById(region.id());
            let verdict = ledger.judge(&question, Answer::One(Some(region.clone())), sent).expect("held once");
            let expected = (sent > stamp.at).then(|| Lateness {
                age: sent.saturating_since(stamp.at),
                changes: naive.changes_between(stamp, sent),
            });
            prop_assert_eq!(verdict, vec![expected]);
        }
    }

    #[test]
    fn forgetting_never_makes_an_answer_fresher_or_wrong(reports in prop::collection::vec(report(), 0..24)) {
        let retention = Duration::from_nanos(STEP * 6);
        let (ledger, naive) = play(&reports, retention);
        prop_assert!(ledger.retained() <= 7);
        let superseded: usize = ledger.log.iter().map(|change| change.removed.len()).sum();
        let periods: usize = ledger.by_id.values().map(|periods| periods.len()).sum();
        prop_assert_eq!(periods, ledger.len() + superseded);
        let now = ledger.latest().at;
        for claim in all_claims(&naive) {
            match (naive.standing(&claim), claim.standing(&ledger)) {
                // What may have been forgotten is not called an error, and counts as at least this old.
                (Standing::Superseded(stamp), Standing::Forgotten(bound)) => {
                    prop_assert!(stamp.at <= bound.at && now.saturating_since(bound.at) > retention);
                }
                (Standing::Never, Standing::Forgotten(_)) => {}
                (full, kept) => prop_assert_eq!(kept, full, "{:?}", claim),
            }
        }
    }
}

#[test]
fn a_leader_move_without_a_new_epoch_supersedes_the_answer() {
    let held = Report {
        id: 1,
        start: 0,
        width: LETTERS,
        version: 1,
        leader: 1,
    };
    let (mut ledger, _) = play(&[], Duration::from_secs(60));
    let moved = Report { leader: 2, ..held }.region();
    ledger.record(Arc::new(moved.clone()), moment(5));
    let ask = Question::Get("c".into());
    let old = ledger.judge(&ask, Answer::One(Some(held.region())), moment(9));
    assert_eq!(
        old,
        Ok(vec![Some(Lateness {
            age: Duration::from_nanos(4 * STEP),
            changes: 1
        })])
    );
    assert_eq!(
        ledger.judge(&ask, Answer::One(Some(moved)), moment(9)),
        Ok(vec![None])
    );
    // The leader comes back: the first answer is true again.
    ledger.record(Arc::new(held.region()), moment(10));
    assert_eq!(
        ledger.judge(&ask, Answer::One(Some(held.region())), moment(12)),
        Ok(vec![None])
    );
}

#[test]
fn a_request_sent_before_the_change_has_no_age() {
    let held = Report {
        id: 1,
        start: 0,
        width: LETTERS,
        version: 1,
        leader: 1,
    };
    let (mut ledger, _) = play(&[], Duration::from_secs(60));
    ledger.record(Arc::new(Report { version: 2, ..held }.region()), moment(5));
    let old = Answer::One(Some(held.region()));
    assert_eq!(
        ledger.judge(&Question::Get("c".into()), old.clone(), moment(5)),
        Ok(vec![None])
    );
    assert_eq!(
        ledger.judge(&Question::Get("c".into()), old, moment(4)),
        Ok(vec![None])
    );
}

#[test]
fn what_the_map_never_held_is_an_error() {
    let (ledger, _) = play(&[], Duration::from_secs(60));
    let invented = Report {
        id: 1,
        start: 0,
        width: LETTERS,
        version: 7,
        leader: 1,
    }
    .region();
    let judged = ledger.judge(
        &Question::Get("c".into()),
        Answer::One(Some(invented.clone())),
        moment(1),
    );
    assert_eq!(
        judged,
        Err(NeverHeld::Item(Box::new(Claim::Holds(invented))))
    );
    let judged = ledger.judge(&Question::Get("c".into()), Answer::One(None), moment(1));
    assert_eq!(
        judged,
        Err(NeverHeld::Item(Box::new(Claim::Uncovered("c".into()))))
    );
}

#[test]
fn a_scan_of_two_moments_is_torn() {
    // Left and right move their leaders in turn; an answer with the first's old and the second's
    // new state was never true.
    let left = Report {
        id: 1,
        start: 0,
        width: 4,
        version: 2,
        leader: 1,
    };
    let right = Report {
        id: 2,
        start: 4,
        width: 4,
        version: 2,
        leader: 1,
    };
    let (ledger, _) = play(
        &[
            left,
            right,
            Report { leader: 2, ..left },
            Report { leader: 2, ..right },
        ],
        Duration::from_secs(60),
    );
    let scan = Question::Scan {
        range: KeyRange::all(),
        limit: 9,
    };
    let torn = vec![left.region(), Report { leader: 2, ..right }.region()];
    assert!(matches!(
        ledger.judge(&scan, Answer::Many(torn), moment(9)),
        Err(NeverHeld::Torn(_, _))
    ));
    let between = vec![Report { leader: 2, ..left }.region(), right.region()];
    let verdict = ledger
        .judge(&scan, Answer::Many(between), moment(9))
        .expect("true between the two moves");
    assert_eq!(verdict.iter().filter(|late| late.is_some()).count(), 1);
}
