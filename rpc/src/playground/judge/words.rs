//! Questions, claims and verdicts in words: one line each, with keys cut short.

use std::fmt;

use tidegate_core::{KeyRange, Region};

use super::{Claim, NeverHeld, Question};

/// Bytes of a key that are shown.
const SHOWN: usize = 8;
/// Items of an answer that are shown.
const ITEMS: usize = 2;

/// The beginning of a key, in hexadecimal digits.
struct Short<'k>(&'k [u8]);

/// What of a region tells it from others.
struct Brief<'r>(&'r Region);

/// The ends of a range.
struct Between<'r>(&'r KeyRange);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the end of the keys");
        }
        for byte in self.0.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        if self.0.len() > SHOWN {
            f.write_str("..")?;
        }
        Ok(())
    }
}

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.0.epoch();
        write!(
            f,
            "region {} (version {}, conf_ver {}, ",
            self.0.id(),
            epoch.version,
            epoch.conf_ver
        )?;
        match self.0.leader() {
            Some(peer) => write!(f, "led from store {})", peer.store_id),
            None => f.write_str("without a leader)"),
        }
    }
}

impl fmt::Display for Between<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.start().is_empty() {
            write!(f, "up to {}", Short(self.0.end()))
        } else {
            write!(
                f,
                "from {} to {}",
                Short(self.0.start()),
                Short(self.0.end())
            )
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(key) => write!(f, "GetRegion at {}", Short(key)),
            Self::Previous(key) => write!(f, "GetPrevRegion at {}", Short(key)),
            Self::ById(id) => write!(f, "GetRegionByID {id}"),
            Self::Scan { range, limit } => {
                write!(f, "ScanRegions {}, {limit} at most", Between(range))
            }
            Self::BatchScan { ranges, limit } => {
                write!(
                    f,
                    "BatchScanRegions of {} ranges, {limit} at most",
                    ranges.len()
                )
            }
            Self::Query {
                keys,
                previous,
                ids,
            } => write!(
                f,
                "QueryRegion of {} keys, {} previous keys and {} ids",
                keys.len(),
                previous.len(),
                ids.len()
            ),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds(region) => write!(f, "{}", Brief(region)),
            Self::Precedes { region, key } => write!(f, "{} before {}", Brief(region), Short(key)),
            Self::Uncovered(key) => write!(f, "no region at {}", Short(key)),
            Self::NoPrevious(key) => write!(f, "no region before that of {}", Short(key)),
            Self::NoSuchId(id) => write!(f, "no region {id}"),
            Self::Hole(range) => write!(f, "no region {}", Between(range)),
        }
    }
}

impl fmt::Display for NeverHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misfit(misfit) => write!(f, "{misfit}"),
            Self::Item(claim) => write!(f, "{claim}, which the leader's map never held"),
            Self::Torn(claims, _) => {
                let first: Vec<String> = claims.iter().take(ITEMS).map(Claim::to_string).collect();
                let more = claims.len().saturating_sub(ITEMS);
                write!(f, "{}", first.join("; "))?;
                if more > 0 {
                    write!(f, "; {more} more")?;
                }
                f.write_str(": true one by one, but never all of them at one moment")
            }
        }
    }
}

impl std::error::Error for NeverHeld {}

#[cfg(test)]
mod tests {
    use tidegate_core::{Key, Peer, PeerRole, RegionEpoch};

    use super::*;

    fn region(id: u64) -> Region {
        let range = KeyRange::new(vec![7; 400], vec![8; 400]).expect("a range");
        let epoch = RegionEpoch {
            conf_ver: 3,
            version: 5,
        };
        let peer = Peer {
            id: 1,
            store_id: 2,
            role: PeerRole::Voter,
            is_witness: false,
        };
        Region::builder(id, range, epoch)
            .peers([peer])
            .leader(Some(peer))
            .build()
            .expect("a region")
    }

    #[test]
    fn a_wrong_answer_is_one_line_whatever_is_in_it() {
        let never = NeverHeld::Item(Box::new(Claim::Holds(region(9))));
        assert_eq!(
            never.to_string(),
            "region 9 (version 5, conf_ver 3, led from store 2), which the leader's map never held"
        );
        let torn = NeverHeld::Torn(
            (1..=1_000).map(|id| Claim::Holds(region(id))).collect(),
            vec![],
        );
        let torn = torn.to_string();
        assert!(torn.contains("region 2 (version 5"), "{torn}");
        assert!(torn.contains("; 998 more: true one by one"), "{torn}");
        assert!(torn.len() < 200 && !torn.contains('\n'), "{torn}");
        let key = Key::from(vec![0xab; 1_000]);
        for (claim, words) in [
            (
                Claim::Uncovered(key.clone()),
                "no region at abababababababab..",
            ),
            (
                Claim::Hole(KeyRange::all()),
                "no region up to the end of the keys",
            ),
            (Claim::NoSuchId(4), "no region 4"),
        ] {
            assert_eq!(claim.to_string(), words);
        }
        assert_eq!(
            Question::Get(key).to_string(),
            "GetRegion at abababababababab.."
        );
    }
}
