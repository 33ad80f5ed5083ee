//! Transactions: compare, then do one of two lists of things, all under one revision.

use std::cmp::Ordering;

use tonic::Status;

use super::Keys;
use super::keys::range_of;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request;
use crate::proto::etcdserverpb::response_op::Response;
use crate::proto::etcdserverpb::{Compare, RequestOp, ResponseOp, TxnRequest, TxnResponse};
use crate::proto::mvccpb::KeyValue;

impl Keys {
    /// A whole transaction, or none of it.
    pub(super) fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded {
            request.success
        } else {
            request.failure
        };
        self.check(&ops)?;
        let revision = self.revision + 1;
        let mut responses = Vec::with_capacity(ops.len());
        let mut changed = false;
        for op in ops {
            let response = match op.request {
                Some(Request::RequestRange(range)) => Response::ResponseRange(self.range(&range)?),
                Some(Request::RequestPut(put)) => {
                    changed = true;
                    Response::ResponsePut(self.put(revision, put))
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    let deleted = self.delete(&delete);
                    changed |= deleted.deleted > 0;
                    Response::ResponseDeleteRange(deleted)
                }
                // `check` lets neither through.
                Some(Request::RequestTxn(_)) | None => return Err(unsupported()),
            };
            responses.push(ResponseOp {
                response: Some(response),
            });
        }
        if changed {
            self.revision = revision;
        }
        Ok(TxnResponse {
            header: None,
            succeeded,
            responses,
        })
    }

    /// Whether all of it can be done.
    fn check(&self, ops: &[RequestOp]) -> Result<(), Status> {
        for op in ops {
            match &op.request {
                Some(Request::RequestRange(range)) => self.range(range).map(drop)?,
                Some(Request::RequestPut(put)) => self.check_put(put)?,
                Some(Request::RequestDeleteRange(delete)) if delete.key.is_empty() => {
                    return Err(Status::invalid_argument("etcdserver: key is not provided"));
                }
                Some(Request::RequestDeleteRange(_)) => {}
                Some(Request::RequestTxn(_)) | None => return Err(unsupported()),
            }
        }
        Ok(())
    }

    /// Whether a comparison holds for every key of its range; one key that is absent counts as a key of zeros.
    fn holds(&self, compare: &Compare) -> bool {
        let absent = KeyValue::default();
        if compare.range_end.is_empty() {
            return holds_for(compare, self.kvs.get(&compare.key).unwrap_or(&absent));
        }
        let mut range = self.kvs.range(range_of(&compare.key, &compare.range_end));
        range.all(|(_, kv)| holds_for(compare, kv))
    }
}

fn holds_for(compare: &Compare, kv: &KeyValue) -> bool {
    let number = |wanted: Option<i64>, have: i64| have.cmp(&wanted.unwrap_or(0));
    let union = compare.target_union.as_ref();
    let ordering = match compare.target() {
        CompareTarget::Version => number(
            union.and_then(|u| {
                if let TargetUnion::Version(v) = u {
                    Some(*v)
                } else {
                    None
                }
            }),
            kv.version,
        ),
        CompareTarget::Create => number(
            union.and_then(|u| {
                if let TargetUnion::CreateRevision(v) = u {
                    Some(*v)
                } else {
                    None
                }
            }),
            kv.create_revision,
        ),
        CompareTarget::Mod => number(
            union.and_then(|u| {
                if let TargetUnion::ModRevision(v) = u {
                    Some(*v)
                } else {
                    None
                }
            }),
            kv.mod_revision,
        ),
        CompareTarget::Lease => number(
            union.and_then(|u| {
                if let TargetUnion::Lease(v) = u {
                    Some(*v)
                } else {
                    None
                }
            }),
            kv.lease,
        ),
        CompareTarget::Value => match union {
            // A key that is absent has no value to compare.
            Some(TargetUnion::Value(value)) if kv.version > 0 => kv.value.cmp(value),
            _ => return false,
        },
    };
    match compare.result() {
        CompareResult::Equal => ordering == Ordering::Equal,
        CompareResult::Greater => ordering == Ordering::Greater,
        CompareResult::Less => ordering == Ordering::Less,
        CompareResult::NotEqual => ordering != Ordering::Equal,
    }
}

fn unsupported() -> Status {
    Status::unimplemented("no transaction within a transaction here")
}
