//! Keys of a range that no region of an answer holds.

use tidegate_core::KeyRange;

/// Whether the ranges have keys that none of the regions found there holds, up to where the limit stopped the scan.
pub(super) fn has_hole<'a>(
    ranges: &[(&'a [u8], &'a [u8])],
    found: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    limit: usize,
) -> bool {
    let stopped = found.len() >= limit;
    let mut found = found.peekable();
    for &(start, end) in ranges {
        if KeyRange::new(start, end).is_err() {
            continue;
        }
        let mut reached = start;
        loop {
            let Some(&(from, to)) = found.peek() else {
                return !stopped;
            };
            if from > reached {
                return true;
            }
            let covers_the_rest = to.is_empty() || (!end.is_empty() && to >= end);
            if covers_the_rest {
                // It may reach into the next range as well.
                break;
            }
            if to > reached {
                reached = to;
            }
            found.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(ranges: &[(&str, &str)], found: &[(&str, &str)], limit: usize) -> bool {
        let bytes = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let pair = |&(a, b): &(&str, &str)| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
            pairs.iter().map(pair).collect()
        };
        let (ranges, found) = (bytes(ranges), bytes(found));
        let ranges: Vec<_> = ranges.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        has_hole(&ranges, found.iter().map(|(a, b)| (&a[..], &b[..])), limit)
    }

    #[test]
    fn a_hole_is_found_before_between_and_behind_regions() {
        let found = [("a", "d"), ("d", "g"), ("k", "")];
        assert!(!hole(&[("b", "f")], &found[..2], 9));
        assert!(!hole(&[("b", "g")], &found[..2], 9));
        assert!(hole(&[("", "f")], &found[..2], 9), "before");
        assert!(hole(&[("b", "z")], &found, 9), "between");
        assert!(hole(&[("b", "h")], &found[..2], 9), "behind");
        assert!(hole(&[("h", "i")], &[], 9), "nothing but a hole");
        assert!(!hole(&[("k", "")], &found[2..], 9));
        assert!(!hole(&[("z", "b")], &[], 9), "no keys at all");
    }

    #[test]
    fn what_lies_behind_the_limit_is_no_hole() {
        let found = [("a", "d"), ("d", "g")];
        assert!(!hole(&[("b", "z")], &found, 2));
        assert!(hole(&[("b", "z")], &found, 3));
    }

    #[test]
    fn one_region_may_cover_several_ranges() {
        let found = [("a", "m"), ("m", "")];
        assert!(!hole(
            &[("b", "c"), ("e", "f"), ("l", "p"), ("x", "")],
            &found,
            9
        ));
        assert!(hole(&[("b", "c"), ("l", "p")], &found[..1], 9));
    }
}
