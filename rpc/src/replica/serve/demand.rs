//! What a caller demands of an answer, in gRPC metadata that PD ignores.
//!
//! | key | value | demand |
//! |---|---|---|
//! | `tidegate-max-age-ms` | whole milliseconds | the answer is no older when it leaves, wherever it comes from, or else refused; stricter than `max-age` or without effect. 0: what the leader says now |
//! | `tidegate-max-lag` | a whole number of changes | the map is no further behind; stricter than `index-threshold` or without effect |
//! | `tidegate-floor` | floors, with commas between them; the key may be repeated | the answer does not say what the caller knows to be wrong (F3) |
//! | `tidegate-read-through` | anything | a replica asks, on behalf of somebody else: it is asked back nothing |
//! | `grpc-timeout` | gRPC's own | nothing is waited for beyond it |
//!
//! A floor is about one region or one key:
//!
//! ```text
//! region=7;conf_ver=5;version=12     region 7, where it is part of the answer, has at least that epoch
//! key=7480000000000000ff;version=12  the region that holds the key (in hexadecimal), likewise
//! ```
//!
//! No answer is 0 ms old when it leaves. So that age has a meaning of its own: the leader's answer to a question that was
//! sent after the caller's had come, however long that takes.
//!
//! `conf_ver` and `version` are whole numbers, either may be left out. What falls below a floor is asked of the leader,
//! in a question sent after the caller's; the leader's answer stands, whether it meets the floor or not. A replica that
//! may not ask refuses.
//!
//! A request may have [`MOST_FLOORS`] of them, and the metadata of a call takes 64 KiB at most: a kilobyte for each.
//!
//! On a stream of QueryRegion the demands are those of its opening, for all its batches. A demand that cannot be read is
//! an error of the caller's (InvalidArgument): one that is silently ignored would protect nobody.

use std::fmt;
use std::time::Duration;

use tidegate_core::gate::Thresholds;
use tidegate_core::{Entry, Moment};
use tokio::time::Instant;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::checks::Rejected;
use super::counters::Rejection;
use crate::proto::metapb::Region;
use crate::replica::ask::MARK;

pub(in crate::replica) const MAX_AGE: &str = "tidegate-max-age-ms";
const MAX_LAG: &str = "tidegate-max-lag";
const FLOOR: &str = "tidegate-floor";
const TIMEOUT: &str = "grpc-timeout";

/// The longest that a lookup waits for the leader, whatever its caller allows: the caller is to have time left for
/// asking the leader itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most floors of a request.
const MOST_FLOORS: usize = 64;

/// The demands of one caller.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Demand {
    max_age: Option<Duration>,
    max_lag: Option<u64>,
    pub(super) floors: Vec<Floor>,
    /// A replica asks.
    pub(super) is_marked: bool,
    patience: Duration,
}

/// What an answer must not fall below.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::replica) struct Floor {
    of: Of,
    conf_ver: u64,
    version: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Of {
    Region(u64),
    Key(Vec<u8>),
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            max_age: None,
            max_lag: None,
            floors: Vec::new(),
            is_marked: false,
            patience: PATIENCE,
        }
    }
}

impl Demand {
    /// Reads the demands of a request.
    pub(super) fn of(metadata: &MetadataMap) -> Result<Self, Rejected> {
        let mut demand = Self {
            is_marked: metadata.contains_key(MARK),
            ..Self::default()
        };
        demand.max_age = strictest(metadata, MAX_AGE)?.map(Duration::from_millis);
        demand.max_lag = strictest(metadata, MAX_LAG)?;
        for value in metadata.get_all(FLOOR) {
            let value = value.to_str().map_err(|_| unreadable(FLOOR, "", "text"))?;
            for floor in value.split(',').filter(|floor| !floor.trim().is_empty()) {
                demand.floors.push(Floor::parse(floor.trim())?);
            }
        }
        if demand.floors.len() > MOST_FLOORS {
            let count = demand.floors.len().to_string();
            return Err(unreadable(FLOOR, &count, "at most 64 floors"));
        }
        // gRPC itself ignores one that it cannot read.
        if let Some(timeout) = metadata
            .get(TIMEOUT)
            .and_then(|it| timeout(it.to_str().ok()?))
        {
            demand.patience = demand.patience.min(timeout);
        }
        Ok(demand)
    }

    /// The gate's thresholds with the caller's own where those are stricter.
    pub(super) fn sharpen(&self, mut thresholds: Thresholds) -> Thresholds {
        if let Some(max_age) = self.max_age {
            thresholds.max_age = thresholds.max_age.min(max_age);
        }
        if let Some(max_lag) = self.max_lag {
            thresholds.index_threshold = thresholds.index_threshold.min(max_lag);
        }
        thresholds
    }

    /// Whether only what the leader says now will do.
    fn wants_the_leaders(&self) -> bool {
        self.max_age == Some(Duration::ZERO)
    }

    /// Whether the leader's answer to a question that was sent so long ago, for this caller or for others that it may
    /// join, is young enough.
    pub(super) fn allows(&self, age: Duration) -> bool {
        self.wants_the_leaders() || self.max_age.is_none_or(|max_age| age <= max_age)
    }

    /// Since when the leader has to have confirmed what counts at `now`, for a caller who came at `arrived`.
    pub(super) fn confirmed_since(
        &self,
        arrived: Moment,
        now: Moment,
        max_age: Duration,
    ) -> Moment {
        if self.wants_the_leaders() {
            return arrived;
        }
        let nanos = u64::try_from(max_age.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(now.as_nanos().saturating_sub(nanos).max(1))
    }

    /// Until when the leader is waited for.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// How old a question to the leader may be whose answer is still good enough. A caller with a floor knows of
    /// something that may have happened just before it asked.
    pub(super) fn since(&self, arrived: Moment, max_age: Duration) -> Moment {
        if self.floors.is_empty() {
            self.confirmed_since(arrived, arrived, max_age)
        } else {
            arrived
        }
    }

    /// Whether a region in an answer meets all floors that are about it.
    pub(super) fn is_met_by(&self, region: &Region) -> bool {
        let epoch = region.region_epoch.unwrap_or_default();
        let epoch = tidegate_core::RegionEpoch::new(epoch.conf_ver, epoch.version);
        let range = (&region.start_key[..], &region.end_key[..]);
        self.floors
            .iter()
            .all(|floor| floor.is_met_by(region.id, range, epoch))
    }

    /// Whether an entry of the map does.
    pub(super) fn is_met_by_entry(&self, entry: &Entry) -> bool {
        let range = (entry.start().as_bytes(), entry.end().as_bytes());
        let (id, epoch) = (entry.id(), entry.epoch());
        self.floors
            .iter()
            .all(|floor| floor.is_met_by(id, range, epoch))
    }
}

impl Floor {
    fn parse(text: &str) -> Result<Self, Rejected> {
        let wrong = || {
            unreadable(
                FLOOR,
                text,
                "region=ID or key=HEX, then ;conf_ver=N and ;version=N as needed",
            )
        };
        let (mut of, mut conf_ver, mut version) = (None, 0, 0);
        for part in text.split(';') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<u64>().map_err(|_| wrong());
            match name {
                "region" if of.is_none() => of = Some(Of::Region(number()?)),
                "key" if of.is_none() => of = Some(Of::Key(bytes(value).ok_or_else(wrong)?)),
                "conf_ver" => conf_ver = number()?,
                "version" => version = number()?,
                _ => return Err(wrong()),
            }
        }
        Ok(Self {
            of: of.ok_or_else(wrong)?,
            conf_ver,
            version,
        })
    }

    fn is_met_by(
        &self,
        id: u64,
        (start, end): (&[u8], &[u8]),
        epoch: tidegate_core::RegionEpoch,
    ) -> bool {
        let concerned = match &self.of {
            Of::Region(own) => id == *own,
            Of::Key(key) => start <= &key[..] && (end.is_empty() || &key[..] < end),
        };
        !concerned || (epoch.conf_ver >= self.conf_ver && epoch.version >= self.version)
    }
}

/// The least of all values of `key`: whoever stands between a caller and us may add a bound of its own, and each is to
/// be kept.
fn strictest(metadata: &MetadataMap, key: &str) -> Result<Option<u64>, Rejected> {
    let mut least: Option<u64> = None;
    for value in metadata.get_all(key) {
        let text = value.to_str().map_err(|_| unreadable(key, "", "text"))?;
        let bound = whole(key, text)?;
        least = Some(least.map_or(bound, |least| least.min(bound)));
    }
    Ok(least)
}

fn whole(key: &str, text: &str) -> Result<u64, Rejected> {
    text.parse()
        .map_err(|_| unreadable(key, text, "a whole number"))
}

fn unreadable(key: &str, text: &str, expected: impl fmt::Display) -> Rejected {
    let shown: String = text.chars().take(64).collect();
    let shown = shown.escape_default();
    let status = Status::invalid_argument(format!(
        "metadata {key}: \"{shown}\" cannot be read; give {expected}"
    ));
    (Rejection::Demand, status)
}

/// Pairs of hexadecimal digits.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        let all_digits = pair.iter().all(u8::is_ascii_hexdigit);
        all_digits.then(|| u8::from_str_radix(text, 16).ok())?
    };
    digits.chunks(2).map(pair).collect()
}

/// gRPC's own notation: up to eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::metapb::RegionEpoch;

    fn demand(pairs: &[(&'static str, &str)]) -> Result<Demand, String> {
        let mut metadata = MetadataMap::new();
        for (key, value) in pairs {
            metadata.append(*key, value.parse().expect("ascii"));
        }
        Demand::of(&metadata).map_err(|(cause, status)| {
            assert_eq!(
                (cause, status.code()),
                (Rejection::Demand, tonic::Code::InvalidArgument)
            );
            status.message().to_owned()
        })
    }

    fn region(id: u64, start: &[u8], end: &[u8], conf_ver: u64, version: u64) -> Region {
        Region {
            id,
            start_key: start.to_vec().into(),
            end_key: end.to_vec().into(),
            region_epoch: Some(RegionEpoch { conf_ver, version }),
            ..Region::default()
        }
    }

    #[test]
    fn bounds_of_a_caller_are_stricter_or_without_effect() {
        let thresholds = Thresholds::default();
        let strict = demand(&[(MAX_AGE, "1500"), (MAX_LAG, "7")]).expect("readable");
        let strict = strict.sharpen(thresholds);
        assert_eq!(
            (strict.max_age, strict.index_threshold),
            (Duration::from_millis(1500), 7)
        );
        let lax = demand(&[(MAX_AGE, "99999999"), (MAX_LAG, "99999999")]).expect("readable");
        assert_eq!(lax.sharpen(thresholds), thresholds);
        assert_eq!(Demand::default().sharpen(thresholds), thresholds);
    }

    #[test]
    fn of_a_bound_that_comes_twice_the_stricter_holds_and_neither_may_be_junk() {
        for values in [["50", "99999"], ["99999", "50"]] {
            let both = values.map(|value| [(MAX_AGE, value), (MAX_LAG, value)]);
            let demand = demand(&both.concat()).expect("readable");
            assert_eq!(demand.max_age, Some(Duration::from_millis(50)));
            assert_eq!(demand.max_lag, Some(50));
        }
        for key in [MAX_AGE, MAX_LAG] {
            let message = demand(&[(key, "5000"), (key, "junk")]).expect_err("no number");
            assert!(
                message.contains(key) && message.contains("junk"),
                "{message}"
            );
        }
    }

    #[test]
    fn f3_a_floor_is_about_a_region_or_about_who_holds_a_key() {
        let floors = [
            (FLOOR, "region=7;conf_ver=5;version=12"),
            (FLOOR, "key=6162;version=3, region=9;conf_ver=2"),
        ];
        let demand = demand(&floors).expect("readable");
        assert_eq!(demand.floors.len(), 3);
        let met = |region: &Region| demand.is_met_by(region);
        assert!(met(&region(7, b"x", b"", 5, 12)) && met(&region(7, b"x", b"", 6, 13)));
        assert!(!met(&region(7, b"x", b"", 4, 99)) && !met(&region(7, b"x", b"", 99, 11)));
        assert!(met(&region(8, b"x", b"", 0, 0)), "nothing is known of it");
        assert!(!met(&region(8, b"a", b"", 9, 2)) && met(&region(8, b"a", b"b", 0, 3)));
        assert!(
            met(&region(8, b"a", b"ab", 0, 0)),
            "ends where the key begins"
        );
        assert!(!met(&region(9, b"x", b"", 1, 99)));
    }

    #[test]
    fn a_demand_that_cannot_be_read_is_the_callers_error() {
        for (key, value) in [
            (MAX_AGE, "1s"),
            (MAX_AGE, "-1"),
            (MAX_LAG, ""),
            (FLOOR, "7"),
            (FLOOR, "version=3"),
            (FLOOR, "region=7;key=61"),
            (FLOOR, "region=7;term=3"),
            (FLOOR, "region=seven"),
            (FLOOR, "key=616"),
            (FLOOR, "key=+1"),
        ] {
            let error = demand(&[(key, value)]).expect_err(value);
            assert!(error.starts_with(&format!("metadata {key}: ")), "{error}");
            assert!(error.contains("; give "), "{error}");
        }
        let many = vec!["region=1"; MOST_FLOORS + 1].join(",");
        assert!(demand(&[(FLOOR, &many)]).is_err());
    }

    #[test]
    fn the_leader_is_waited_for_no_longer_than_the_caller_waits_for_us() {
        let patience = |value| demand(&[(TIMEOUT, value)]).expect("readable").patience;
        assert_eq!(patience("50m"), Duration::from_millis(50));
        assert_eq!(patience("250000u"), Duration::from_millis(250));
        assert_eq!(patience("3S"), PATIENCE);
        for odd in ["", "m", "5", "5x", "123456789n", "-1m"] {
            assert_eq!(patience(odd), PATIENCE, "{odd}");
        }
    }

    #[test]
    fn whoever_has_a_floor_wants_a_question_sent_after_its_own() {
        let arrived = Moment::from_nanos(5_000_000_000);
        let max_age = Duration::from_secs(2);
        assert_eq!(
            Demand::default().since(arrived, max_age),
            Moment::from_nanos(3_000_000_000)
        );
        let floored = demand(&[(FLOOR, "region=1")]).expect("readable");
        assert_eq!(floored.since(arrived, max_age), arrived);
    }
}
