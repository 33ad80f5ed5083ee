//! The history ring against the sequential history of the core crate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::history::{Capacity, adaptive_history, model::ModelHistory};
use tidegate_fuzz::bytes::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    // Up to 159 records, in segments of one to eight; growing up to eightfold.
    let base = usize::from(bytes.below(160));
    let capacity = Capacity::growing(base, base << bytes.below(4));
    let begin = u64::from(bytes.pair());
    let (mut appender, reader) = adaptive_history::<u64>(capacity, begin);
    let mut model = ModelHistory::adaptive(capacity, begin);
    // Few, so that those of which there are too many do not slow down the rest.
    let (mut cursors, mut retained) = (Vec::new(), Vec::new());
    // Tells a record from those of other rounds, and of other numberings, in its place.
    let mut value = 0;

    while !bytes.is_empty() {
        let next = model.next_index();
        // From well before the oldest to well after the newest.
        let place = |byte: u8| (next + 16).saturating_sub(u64::from(byte) * 2);
        match bytes.byte() % 16 {
            0..=2 => {
                value += 1;
                assert_eq!(appender.append(value), model.append(value));
            }
            3..=5 => {
                let records = value + 1..value + 1 + u64::from(bytes.below(90));
                value = records.end - 1;
                records.clone().for_each(|record| {
                    model.append(record);
                });
                assert_eq!(appender.append_all(records), next..model.next_index());
            }
            6 if cursors.len() < 8 => {
                let from = place(bytes.byte());
                assert_eq!(model.cursor(from), cursors.len());
                cursors.push(Some(reader.cursor(from)));
            }
            7 | 8 => {
                let cursor = usize::from(bytes.below(8));
                let limit = usize::from(bytes.byte());
                let ours = cursors.get_mut(cursor).and_then(Option::as_mut);
                let step = ours.map(|cursor| cursor.read(limit));
                assert_eq!(step, model.step(cursor, limit));
            }
            9 => {
                let cursor = usize::from(bytes.below(8));
                model.drop_cursor(cursor);
                if let Some(cursor) = cursors.get_mut(cursor) {
                    *cursor = None;
                }
            }
            10 if retained.len() < 8 => {
                let from = place(bytes.byte());
                match (reader.retain(from), model.retain(from)) {
                    (Ok(token), Ok(handle)) => {
                        assert_eq!(handle, retained.len());
                        retained.push(Some(token));
                    }
                    (ours, models) => assert_eq!(ours.err(), models.err()),
                }
            }
            11 => {
                let handle = usize::from(bytes.below(8));
                model.release(handle);
                if let Some(token) = retained.get_mut(handle) {
                    *token = None;
                }
            }
            12 => match bytes.byte() {
                0 => {
                    let index = u64::from(bytes.pair());
                    appender.reset_with_index(index);
                    model.reset_with_index(index);
                }
                byte => {
                    let from = place(byte);
                    appender.observe(from);
                    model.wanted(from);
                }
            },
            13 => {
                assert_eq!(appender.maintain(), model.maintain());
                assert_eq!(appender.persist_due(), model.persist_due());
            }
            _ => {
                let from = place(bytes.byte());
                let limit = usize::from(bytes.byte());
                assert_eq!(reader.read(from, limit), model.read(from, limit));
            }
        }
        assert_eq!(appender.next_index(), model.next_index());
        assert_eq!(reader.indexes(), model.first_index()..model.next_index());
        assert_eq!(reader.capacity(), model.capacity());
    }
});
