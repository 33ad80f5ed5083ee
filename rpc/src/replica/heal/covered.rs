//! The keys about which an answer says everything.

use tidegate_core::{Key, KeyRange};

/// A set of keys, as disjoint ranges that do not touch, in ascending order.
#[derive(Debug)]
pub(super) struct Covered(Vec<(Key, Key)>);

impl Covered {
    /// The union of `ranges`. O(n log n).
    pub(super) fn by<'a>(ranges: impl Iterator<Item = &'a KeyRange>) -> Self {
        let mut ranges: Vec<(Key, Key)> = ranges
            .map(|range| (range.start().clone(), range.end().clone()))
            .collect();
        ranges.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut union: Vec<(Key, Key)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match union.last_mut() {
                // An empty end is plus infinity.
                Some((_, last)) if last.is_empty() => break,
                Some((_, last)) if start <= *last => {
                    if end.is_empty() || end > *last {
                        *last = end;
                    }
                }
                _ => union.push((start, end)),
            }
        }
        Self(union)
    }

    /// Whether every key of `range` is in the set. O(log n).
    pub(super) fn holds(&self, range: &KeyRange) -> bool {
        let after = self.0.partition_point(|(start, _)| start <= range.start());
        let Some((_, end)) = after.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return false;
        };
        end.is_empty() || (!range.end().is_empty() && range.end() <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(start, end).expect("a range")
    }

    #[test]
    fn ranges_that_touch_or_overlap_cover_as_one() {
        let pieces = [
            range("m", "p"),
            range("a", "c"),
            range("b", "d"),
            range("d", "f"),
        ];
        let covered = Covered::by(pieces.iter());
        for held in [("a", "f"), ("c", "e"), ("m", "p"), ("n", "o")] {
            assert!(covered.holds(&range(held.0, held.1)), "{held:?}");
        }
        for open in [
            ("", "b"),
            ("e", "g"),
            ("f", "m"),
            ("a", ""),
            ("m", "q"),
            ("x", "y"),
        ] {
            assert!(!covered.holds(&range(open.0, open.1)), "{open:?}");
        }
    }

    #[test]
    fn an_open_end_covers_all_that_follows() {
        let pieces = [range("c", ""), range("x", "y"), range("a", "b")];
        let covered = Covered::by(pieces.iter());
        assert!(covered.holds(&range("c", "")) && covered.holds(&range("z", "")));
        assert!(!covered.holds(&range("b", "d")) && !covered.holds(&range("", "")));
        assert!(!Covered::by([].iter()).holds(&range("", "")));
    }
}
