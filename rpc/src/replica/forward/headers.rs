//! The headers of a call that is passed on.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tonic::Status;

/// Whom the call is to be passed on to; PD's key. It goes out empty, which names nobody.
const FORWARDED_HOST: HeaderName = HeaderName::from_static("pd-forwarded-host");

/// The marks of the replicas that a call came through, with commas.
const VIA: HeaderName = HeaderName::from_static("tidegate-via");

/// The most replicas that a call may come through.
const LONGEST_WAY: usize = 8;

/// What belongs to one connection and not to the call. `te` is not among them: gRPC demands it on every connection.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The mark of a process.
pub(super) fn mark(random: u64) -> HeaderValue {
    // Digits are a header's value.
    HeaderValue::from(random)
}

/// Readies a call's headers for the leader.
///
/// # Errors
/// The call has been here before, or came too far.
pub(super) fn pass_on(headers: &mut HeaderMap, mark: &HeaderValue) -> Result<(), Status> {
    let way = way(headers, mark)?;
    carry(headers, way);
    strip_hop_by_hop(headers);
    if let Some(host) = headers.get_mut(FORWARDED_HOST) {
        *host = HeaderValue::from_static("");
    }
    Ok(())
}

/// The marks that the call is to carry from here on.
pub(super) fn way(headers: &HeaderMap, mark: &HeaderValue) -> Result<HeaderValue, Status> {
    let mut way = Vec::new();
    for came in headers.get_all(VIA) {
        way.extend_from_slice(came.as_bytes());
        way.push(b',');
    }
    let marks = || way.split(|byte| *byte == b',').filter(|m| !m.is_empty());
    if marks().any(|other| other == mark.as_bytes()) || marks().count() >= LONGEST_WAY {
        return Err(in_a_circle());
    }
    way.extend_from_slice(mark.as_bytes());
    HeaderValue::from_bytes(&way).map_err(|_| in_a_circle())
}

/// Puts the marks on a call.
pub(super) fn carry(headers: &mut HeaderMap, way: HeaderValue) {
    headers.insert(VIA, way);
}

/// The answer to a call that comes back to where it was.
pub(super) fn in_a_circle() -> Status {
    Status::unavailable(
        "no leader: the call goes round in a circle of replicas; point --backend-endpoints at PD itself",
    )
}

pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Whether two URLs name the same address, whatever their scheme: clients write the one that suits their own settings.
pub(super) fn same_address(one: &str, other: &str) -> bool {
    fn bare(url: &str) -> &str {
        let url = url.split_once("://").map_or(url, |(_, rest)| rest);
        url.trim_end_matches('/')
    }
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_the_connection_is_left_out_and_the_rest_stays() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("grpc-timeout", "250m"),
            ("grpc-encoding", "gzip"),
            ("x-bin", "AAE"),
            ("pd-forwarded-host", "http://pd-0:2379"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        pass_on(&mut headers, &mark(7)).expect("its first time here");
        let mut left: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("ascii")))
            .collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                ("grpc-encoding", "gzip"),
                ("grpc-timeout", "250m"),
                ("pd-forwarded-host", ""),
                ("te", "trailers"),
                ("tidegate-via", "7"),
                ("x-bin", "AAE"),
            ]
        );
    }

    #[test]
    fn a_call_that_comes_back_is_turned_away_and_so_is_one_that_came_too_far() {
        let mut headers = HeaderMap::new();
        for mark_of in 0..LONGEST_WAY as u64 {
            pass_on(&mut headers, &mark(mark_of)).expect("a new replica");
        }
        assert_eq!(headers[VIA], "0,1,2,3,4,5,6,7");
        assert!(pass_on(&mut headers.clone(), &mark(99)).is_err());
        headers.insert(VIA, HeaderValue::from_static("17,4"));
        assert!(
            pass_on(&mut headers.clone(), &mark(7)).is_ok(),
            "7 is not 17"
        );
        let status = pass_on(&mut headers, &mark(17)).expect_err("it was here");
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("--backend-endpoints"));
    }

    #[test]
    fn addresses_are_compared_without_their_scheme() {
        assert!(same_address("http://pd-0:2379/", "https://pd-0:2379"));
        assert!(!same_address("http://pd-0:2379", "http://pd-0:2380"));
    }
}
