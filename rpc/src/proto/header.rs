//! Request and response headers by PD's rules.
//!
//! A successful header carries the cluster id and no error at all: clients test for the presence of `error`, not for
//! its type. The cluster id of a request is checked in the gRPC status, not in the header.

use tonic::Status;

use super::pdpb::{Error, ErrorType, RequestHeader, ResponseHeader};

/// A header that says that the request succeeded.
pub fn ok_header(cluster_id: u64) -> ResponseHeader {
    ResponseHeader {
        cluster_id,
        error: None,
    }
}

/// A header that says why the request failed.
pub fn error_header(
    cluster_id: u64,
    kind: ErrorType,
    message: impl Into<String>,
) -> ResponseHeader {
    ResponseHeader {
        cluster_id,
        error: Some(Error {
            r#type: kind.into(),
            message: message.into(),
        }),
    }
}

/// The header of a follower that has no answer, or must not give the one it has: stock clients go to the leader.
pub fn region_not_found(cluster_id: u64) -> ResponseHeader {
    error_header(cluster_id, ErrorType::RegionNotFound, "region not found")
}

/// The header of a leader whose cluster has no store and no region yet.
pub fn not_bootstrapped(cluster_id: u64) -> ResponseHeader {
    error_header(
        cluster_id,
        ErrorType::NotBootstrapped,
        "cluster is not bootstrapped",
    )
}

/// Checks that a request is meant for this cluster. An absent header counts as cluster id 0.
///
/// # Errors
///
/// `FailedPrecondition` with PD's text when the ids differ.
pub fn check_cluster(header: Option<&RequestHeader>, cluster_id: u64) -> Result<(), Status> {
    let got = header.map_or(0, |header| header.cluster_id);
    if got == cluster_id {
        Ok(())
    } else {
        Err(Status::failed_precondition(format!(
            "mismatch cluster id, need {cluster_id} but got {got}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_success_carries_no_error_at_all() {
        assert_eq!(
            ok_header(7),
            ResponseHeader {
                cluster_id: 7,
                error: None
            }
        );
    }

    #[test]
    fn a_foreign_or_missing_cluster_id_is_refused_with_pds_text() {
        let foreign = RequestHeader {
            cluster_id: 8,
            ..RequestHeader::default()
        };
        let status = check_cluster(Some(&foreign), 7).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "mismatch cluster id, need 7 but got 8");
        assert_eq!(
            check_cluster(None, 7).unwrap_err().message(),
            "mismatch cluster id, need 7 but got 0"
        );
        let own = RequestHeader {
            cluster_id: 7,
            ..RequestHeader::default()
        };
        assert!(check_cluster(Some(&own), 7).is_ok());
    }

    #[test]
    fn a_refusal_is_pds_region_not_found() {
        let error = region_not_found(7).error.unwrap();
        assert_eq!(error.r#type, 6);
        assert_eq!(error.message, "region not found");
    }
}
