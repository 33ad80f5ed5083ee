//! The history ring against the sequential history of the core crate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::history::{history, model::ModelHistory};
use tidegate_fuzz::bytes::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let capacity = usize::from(bytes.below(40));
    let begin = u64::from(bytes.pair());
    let (mut appender, reader) = history::<u64>(capacity, begin);
    let mut model = ModelHistory::new(capacity, begin);
    assert!(reader.capacity() >= capacity.max(1));

    while !bytes.is_empty() {
        let next = model.next_index();
        match bytes.byte() % 4 {
            0 => {
                // The value tells a record from the other rounds' at its slot.
                let record = next << 8 | u64::from(bytes.byte());
                assert_eq!(appender.append(record), model.append(record));
            }
            1 => {
                let records = (0..u64::from(bytes.below(90))).map(|n| (next + n) << 8);
                records.clone().for_each(|record| {
                    model.append(record);
                });
                assert_eq!(appender.append_all(records), next..model.next_index());
            }
            _ => {
                // From well before the oldest to well after the newest.
                let from = (next + 64).saturating_sub(u64::from(bytes.byte()));
                let limit = usize::from(bytes.byte());
                assert_eq!(reader.read(from, limit), model.read(from, limit));
            }
        }
        assert_eq!(appender.next_index(), model.next_index());
        assert_eq!(reader.next_index(), model.next_index());
        assert_eq!(reader.first_index(), model.first_index());
    }
});
