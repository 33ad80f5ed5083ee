//! Scripts of everything that can be done with a history, compared with the sequential model.

use proptest::prelude::*;

use super::super::model::ModelHistory;
use super::super::*;

#[derive(Clone, Debug)]
enum Op {
    Append,
    AppendAll(usize),
    Read { back: i64, limit: usize },
    Cursor { back: i64 },
    Step { cursor: usize, limit: usize },
    DropCursor(usize),
    Retain { back: i64 },
    Release(usize),
    Observe { back: i64 },
    Maintain,
    PersistDue,
    Reset { ahead: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let back = || prop_oneof![3 => -3..25_i64, 1 => -3..400_i64];
    prop_oneof![
        6 => Just(Op::Append),
        3 => prop_oneof![0..20_usize, 0..200_usize].prop_map(Op::AppendAll),
        6 => (back(), 0..12_usize).prop_map(|(back, limit)| Op::Read { back, limit }),
        2 => back().prop_map(|back| Op::Cursor { back }),
        6 => (0..4_usize, 0..40_usize).prop_map(|(cursor, limit)| Op::Step { cursor, limit }),
        1 => (0..4_usize).prop_map(Op::DropCursor),
        2 => back().prop_map(|back| Op::Retain { back }),
        1 => (0..3_usize).prop_map(Op::Release),
        1 => back().prop_map(|back| Op::Observe { back }),
        4 => Just(Op::Maintain),
        2 => Just(Op::PersistDue),
        1 => (-30..30_i64).prop_map(|ahead| Op::Reset { ahead }),
    ]
}

/// Sizes around those at which segments become longer.
fn capacity() -> impl Strategy<Value = Capacity> {
    let base = prop_oneof![4 => 0..9_usize, 2 => 30..36_usize, 2 => 60..140_usize];
    (base, 0..5_u32).prop_map(|(base, doublings)| Capacity::growing(base, base << doublings))
}

fn index(next: u64, back: i64) -> u64 {
    next.saturating_add_signed(-back)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 512 }))]

    #[test]
    fn the_ring_answers_like_the_model(
        capacity in capacity(),
        origin in prop_oneof![Just(0_u64), 1..50_u64, Just(u64::MAX - 1_000_000)],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let (mut appender, ring) = adaptive_history(capacity, origin);
        let mut model = ModelHistory::adaptive(capacity, origin);
        let (mut cursors, mut retained) = (Vec::new(), Vec::new());
        // Not the index, so that a record of an earlier numbering is told from one of this.
        let mut value = 0_u64;
        for op in ops {
            let next = appender.next_index();
            match op {
                Op::Append => {
                    value += 1;
                    prop_assert_eq!(appender.append(value), model.append(value));
                }
                Op::AppendAll(count) => {
                    let values = value + 1..value + 1 + count as u64;
                    value += count as u64;
                    values.clone().for_each(|value| { model.append(value); });
                    prop_assert_eq!(appender.append_all(values), next..model.next_index());
                }
                Op::Read { back, limit } => {
                    let from = index(next, back);
                    prop_assert_eq!(ring.read(from, limit), model.read(from, limit));
                }
                Op::Cursor { back } => {
                    let from = index(next, back);
                    prop_assert_eq!(model.cursor(from), cursors.len());
                    cursors.push(Some(ring.cursor(from)));
                }
                Op::Step { cursor, limit } => {
                    let step = cursors.get_mut(cursor).and_then(Option::as_mut);
                    prop_assert_eq!(
                        step.map(|cursor| cursor.read(limit)),
                        model.step(cursor, limit)
                    );
                }
                Op::DropCursor(cursor) => {
                    model.drop_cursor(cursor);
                    if let Some(cursor) = cursors.get_mut(cursor) {
                        *cursor = None;
                    }
                }
                Op::Retain { back } => {
                    let from = index(next, back);
                    match (ring.retain(from), model.retain(from)) {
                        (Ok(token), Ok(handle)) => {
                            prop_assert_eq!(token.from(), from);
                            prop_assert_eq!(handle, retained.len());
                            retained.push(Some(token));
                        }
                        (Err(ours), Err(models)) => prop_assert_eq!(ours, models),
                        (ours, models) => prop_assert!(false, "{ours:?} instead of {models:?}"),
                    }
                }
                Op::Release(handle) => {
                    model.release(handle);
                    if let Some(token) = retained.get_mut(handle) {
                        *token = None;
                    }
                }
                Op::Observe { back } => {
                    let from = index(next, back);
                    appender.observe(from);
                    model.wanted(from);
                }
                Op::Maintain => prop_assert_eq!(appender.maintain(), model.maintain()),
                Op::PersistDue => prop_assert_eq!(appender.persist_due(), model.persist_due()),
                Op::Reset { ahead } => {
                    let index = index(next, -ahead);
                    appender.reset_with_index(index);
                    model.reset_with_index(index);
                }
            }
            prop_assert_eq!(ring.first_index(), model.first_index());
            prop_assert_eq!(ring.next_index(), model.next_index());
            prop_assert_eq!(appender.capacity(), model.capacity());
            prop_assert_eq!(ring.capacity(), model.capacity());
        }
    }
}
