//! Messages on the wire, in buffers of their own size.
//!
//! I own how much memory a call takes before its message is known. I promise a kibibyte or so each
//! way, where tonic takes eight: an open call costs what it says, and a client that holds thousands
//! open holds little. I never look into a message.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::Status;
use tonic_prost::ProstCodec;

use crate::encode::Encode;
use crate::limits::{CALL_BUFFER_BYTES, CALL_YIELD_BYTES};

/// Prost messages, as `tonic_prost::ProstCodec` has them, with small buffers.
#[derive(Clone, Debug)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Encode + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SmallEncoder<T>;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        SmallEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}

/// Writes messages by [`Encode`].
#[derive(Clone, Debug)]
pub struct SmallEncoder<T>(PhantomData<T>);

impl<T: Encode> Encoder for SmallEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode_to(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(CALL_BUFFER_BYTES, CALL_YIELD_BYTES)
}
