//! What a replica tells, beside its frames, to replicas that follow it.
//!
//! A PD leader tells nothing of the kind, which is how the two are told apart. All of it is in the response's metadata,
//! so that it is there before the first frame:
//!
//! A follower says in its request's header of what term its index is (`caller_component` = `tidegate`, `caller_id` = the
//! term), which PD does not look at.
//!
//! | key | value |
//! |---|---|
//! | `tidegate-term` | the term that the stream's indexes are of |
//! | `tidegate-leader-id` | the member id of the leader of that term |
//! | `tidegate-path` | ids of replicas, with commas: the one that answers, then the one that it follows, and so on; the last one follows PD |
//! | `tidegate-behind-ms` | to a probe: how much earlier than the question the latest proof of the one that answers is; rounded up |

use std::time::Duration;

use tonic::metadata::{MetadataMap, MetadataValue};

use super::term::Term;

const TERM: &str = "tidegate-term";
const LEADER: &str = "tidegate-leader-id";
const PATH: &str = "tidegate-path";
const BEHIND: &str = "tidegate-behind-ms";

/// What a replica that asks for a sync stream says of itself (`caller_component`); `caller_id` is the term of its index.
pub(crate) const CALLER: &str = "tidegate";

/// Why a stream ends whose replica stops (Unavailable).
pub(crate) const STOPPING: &str = "this replica is stopping";

/// Why a replica that has just started refuses a stream (Unavailable).
pub(crate) const NOTHING_YET: &str = "this replica has nothing yet that could be followed";

/// The most replicas between PD and one that follows.
pub(crate) const LONGEST_PATH: usize = 8;

/// What a replica tells to a follower.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// The term that its indexes are of.
    pub term: Term,
    /// The member id of that term's leader.
    pub leader_id: u64,
    /// The ids of the replicas from itself on to the one that follows PD.
    pub path: Vec<String>,
    /// How much earlier than the question its latest proof is; zero when it is for the question's time or a later one.
    pub behind: Duration,
}

impl Told {
    pub(crate) fn write(&self, metadata: &mut MetadataMap) {
        let millis = self.behind.as_nanos().div_ceil(1_000_000);
        for (key, value) in [
            (TERM, self.term.create_revision().to_string()),
            (LEADER, self.leader_id.to_string()),
            (PATH, self.path.join(",")),
            (BEHIND, millis.to_string()),
        ] {
            // Ids are hexadecimal digits, the rest is decimal.
            if let Ok(value) = MetadataValue::try_from(value) {
                metadata.insert(key, value);
            }
        }
    }

    /// `None` when the one that answers is no replica.
    pub(crate) fn read(metadata: &MetadataMap) -> Option<Self> {
        let text = |key: &str| metadata.get(key)?.to_str().ok();
        let term = text(TERM)?.parse().ok()?;
        Some(Self {
            term: Term::from_create_revision(term),
            leader_id: text(LEADER)?.parse().ok()?,
            path: text(PATH)?
                .split(',')
                .filter(|id| !id.is_empty())
                .take(LONGEST_PATH + 1)
                .map(str::to_owned)
                .collect(),
            behind: Duration::from_millis(text(BEHIND)?.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_an_age_is_never_made_younger() {
        let told = Told {
            term: Term::from_create_revision(42),
            leader_id: 7,
            path: vec!["aa".to_owned(), "bb".to_owned()],
            behind: Duration::from_nanos(1_000_001),
        };
        let mut metadata = MetadataMap::new();
        assert_eq!(Told::read(&metadata), None, "PD tells nothing");
        told.write(&mut metadata);
        let expected = Told {
            behind: Duration::from_millis(2),
            ..told
        };
        assert_eq!(Told::read(&metadata), Some(expected));
        metadata.insert(TERM, MetadataValue::from_static("soon"));
        assert_eq!(Told::read(&metadata), None);
    }
}
