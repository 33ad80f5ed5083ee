//! The history ring against a list of everything that was ever appended.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::history::{Answer, history};
use tidegate_fuzz::bytes::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let capacity = usize::from(bytes.below(40));
    let begin = u64::from(bytes.pair());
    let (mut appender, reader) = history::<u64>(capacity, begin);
    let kept = reader.capacity();
    assert!(kept >= capacity.max(1));

    // Record `begin + n` is `all[n]`; its value tells it from the other rounds' at its slot.
    let mut all: Vec<u64> = Vec::new();
    while !bytes.is_empty() {
        let next = begin + all.len() as u64;
        match bytes.byte() % 4 {
            0 => {
                let record = next << 8 | u64::from(bytes.byte());
                assert_eq!(appender.append(record), next);
                all.push(record);
            }
            1 => {
                let records = (0..u64::from(bytes.below(90))).map(|n| (next + n) << 8);
                let _ = appender.append_all(records.clone());
                all.extend(records);
            }
            _ => {
                // From well before the oldest to well after the newest.
                let from = (next + 64).saturating_sub(u64::from(bytes.byte()));
                let limit = 1 + usize::from(bytes.byte());
                let expected = expected(begin, &all, kept, from, limit);
                assert_eq!(reader.read(from, limit), expected);
            }
        }
        let next = begin + all.len() as u64;
        assert_eq!((appender.next_index(), reader.next_index()), (next, next));
        assert_eq!(
            reader.first_index(),
            begin + all.len().saturating_sub(kept) as u64
        );
    }
});

fn expected(begin: u64, all: &[u64], kept: usize, from: u64, limit: usize) -> Answer<u64> {
    let next = begin + all.len() as u64;
    let first = begin + all.len().saturating_sub(kept) as u64;
    if from > next {
        Answer::Ahead { next }
    } else if from == next {
        Answer::CaughtUp
    } else if from < first {
        Answer::Gap { first }
    } else {
        let records = &all[(from - begin) as usize..];
        Answer::Records {
            first: from,
            records: records[..limit.min(records.len())].to_vec(),
        }
    }
}
