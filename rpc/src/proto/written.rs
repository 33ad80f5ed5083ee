//! Responses that are bytes already, but for their header.

use std::fmt;
use std::marker::PhantomData;

use bytes::BufMut;
use prost::Message;
use prost::encoding::message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::pdpb::ResponseHeader;

/// The number of the header in every response of PD's.
const HEADER: u32 = 1;

/// A response whose header is apart, and whose rest may have been written already ([`wire`](super::wire)).
#[derive(Clone)]
pub(crate) struct Written<M> {
    pub(crate) header: Option<ResponseHeader>,
    /// One of its regions; 0 if it has none.
    pub(crate) a_region: u64,
    /// Of a scan: whether there are keys in its ranges that it keeps silent about.
    pub(crate) has_hole: bool,
    rest: Rest<M>,
}

#[derive(Clone)]
enum Rest<M> {
    Message(M),
    Bytes(Vec<u8>),
}

impl<M> Written<M> {
    /// A response without a header, of which the rest is `bytes`; it has `a_region` among others.
    pub(crate) fn bytes(bytes: Vec<u8>, a_region: u64) -> Self {
        Self {
            header: None,
            a_region,
            has_hole: false,
            rest: Rest::Bytes(bytes),
        }
    }

    /// A response without a header of its own, under `header`.
    pub(crate) fn message(header: Option<ResponseHeader>, rest: M, a_region: u64) -> Self {
        Self {
            header,
            a_region,
            has_hole: false,
            rest: Rest::Message(rest),
        }
    }
}

impl<M: Message + Default> Written<M> {
    /// The rest as a message, which has no header.
    pub(crate) fn decoded(self) -> (Option<ResponseHeader>, M) {
        let rest = match self.rest {
            Rest::Message(rest) => rest,
            // Written by us, so that it can be read.
            Rest::Bytes(bytes) => M::decode(&bytes[..]).unwrap_or_default(),
        };
        (self.header, rest)
    }

    fn encoded_len(&self) -> usize {
        let header = self.header.as_ref();
        let header = header.map_or(0, |header| message::encoded_len(HEADER, header));
        header
            + match &self.rest {
                Rest::Message(rest) => rest.encoded_len(),
                Rest::Bytes(bytes) => bytes.len(),
            }
    }

    fn encode(&self, into: &mut impl BufMut) {
        if let Some(header) = &self.header {
            message::encode(HEADER, header, into);
        }
        match &self.rest {
            Rest::Message(rest) => rest.encode_raw(into),
            Rest::Bytes(bytes) => into.put_slice(bytes),
        }
    }
}

impl<M: Default> Default for Written<M> {
    fn default() -> Self {
        Self::message(None, M::default(), 0)
    }
}

impl<M> fmt::Debug for Written<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written")
            .field("header", &self.header)
            .field("a_region", &self.a_region)
            .finish_non_exhaustive()
    }
}

/// gRPC's codec of a method that takes `Q` and answers with a written `M`.
#[derive(Debug)]
pub(crate) struct WrittenCodec<M, Q>(PhantomData<fn(Q) -> M>);

impl<M, Q> Default for WrittenCodec<M, Q> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M, Q> Codec for WrittenCodec<M, Q>
where
    M: Message + Default + 'static,
    Q: Message + Default + 'static,
{
    type Encode = Written<M>;
    type Decode = Q;
    type Encoder = WrittenEncoder<M>;
    type Decoder = ProstDecoder<Q>;

    fn encoder(&mut self) -> WrittenEncoder<M> {
        WrittenEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<Q> {
        ProstCodec::<Q, Q>::raw_decoder(BufferSettings::default())
    }
}

/// Its way out.
#[derive(Debug)]
pub(crate) struct WrittenEncoder<M>(PhantomData<fn(M)>);

impl<M: Message + Default + 'static> Encoder for WrittenEncoder<M> {
    type Item = Written<M>;
    type Error = Status;

    fn encode(&mut self, item: Written<M>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(item.encoded_len());
        item.encode(into);
        Ok(())
    }
}

#[cfg(test)]
impl<M: Message + Default> Written<M> {
    /// The bytes that go out.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        assert_eq!(bytes.len(), self.encoded_len());
        bytes
    }
}
