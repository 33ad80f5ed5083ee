//! How fresh an answer is, in the answer's metadata (F4).
//!
//! | key | value |
//! |---|---|
//! | `tidegate-source` | `map`: the map, proven fresh; `confirmed`: entries that the leader has confirmed; `leader`: the leader was asked; `none`: no answer |
//! | `tidegate-age-ms` | how old the answer can be, in milliseconds: since the proof, the confirmation or the question |
//! | `tidegate-lag` | changes that are known and not in the map; only with source `map`, and where it is known |
//! | `tidegate-refused` | why there is no answer: the gate's reason, `missed`, or why the leader could not be asked |
//!
//! On unary lookups these are in the response's headers. A stream of QueryRegion has headers only at its opening, and
//! no metadata beside its messages, so that they tell of that moment; a stream that ends with an error has them in its
//! trailers, too.

use std::time::Duration;

use tidegate_core::gate::Lag;
use tonic::Response;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// Where an answer comes from. On every answer to a lookup that a replica gives; PD sets nothing of the kind.
pub(in crate::replica) const SOURCE: &str = "tidegate-source";
const AGE: &str = "tidegate-age-ms";
const LAG: &str = "tidegate-lag";
const REFUSED: &str = "tidegate-refused";

/// How fresh an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::replica) enum Fresh {
    /// From the map, which is proven to be no older.
    Map { age: Duration, lag: Lag },
    /// From the map, whatever the gate says: it is switched off.
    Unproven,
    /// From entries that the leader has confirmed.
    Confirmed { age: Duration },
    /// From the leader.
    Leader { age: Duration },
    /// No answer.
    None { why: &'static str },
}

impl Fresh {
    /// Writes it down.
    pub(super) fn note(self, metadata: &mut MetadataMap) {
        let (source, age) = match self {
            Self::Map { age, .. } => ("map", Some(age)),
            Self::Unproven => ("map", None),
            Self::Confirmed { age } => ("confirmed", Some(age)),
            Self::Leader { age } => ("leader", Some(age)),
            Self::None { .. } => ("none", None),
        };
        metadata.insert(SOURCE, AsciiMetadataValue::from_static(source));
        if let Some(age) = age {
            let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            metadata.insert(AGE, millis.into());
        }
        if let Self::Map {
            lag: Lag::Known(lag),
            ..
        } = self
        {
            metadata.insert(LAG, lag.into());
        }
        if let Self::None { why } = self {
            metadata.insert(REFUSED, AsciiMetadataValue::from_static(why));
        }
    }

    /// A response that says it.
    pub(super) fn with<T>(self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        self.note(response.metadata_mut());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f4_an_answer_says_where_it_comes_from_and_how_old_it_can_be() {
        let age = Duration::from_micros(1_234_567);
        let said = |fresh: Fresh| {
            let response = fresh.with(());
            [SOURCE, AGE, LAG, REFUSED].map(|key| {
                response
                    .metadata()
                    .get(key)
                    .map(|value| value.to_str().expect("text").to_owned())
            })
        };
        let some = |text: &str| Some(text.to_owned());
        let map = Fresh::Map {
            age,
            lag: Lag::Known(7),
        };
        assert_eq!(said(map), [some("map"), some("1234"), some("7"), None]);
        let unknown = Fresh::Map {
            age,
            lag: Lag::Unknown,
        };
        assert_eq!(said(unknown), [some("map"), some("1234"), None, None]);
        assert_eq!(said(Fresh::Unproven), [some("map"), None, None, None]);
        assert_eq!(
            said(Fresh::Confirmed { age }),
            [some("confirmed"), some("1234"), None, None]
        );
        assert_eq!(
            said(Fresh::Leader { age }),
            [some("leader"), some("1234"), None, None]
        );
        assert_eq!(
            said(Fresh::None { why: "age" }),
            [some("none"), None, None, some("age")]
        );
    }
}
