//! Reading and writing messages: as the library does, but an invalid message is the client's mistake
//! (INVALID_ARGUMENT). The library calls it the server's (INTERNAL), which alerts operators.

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Writes `T`, and reads `U`.
#[derive(Debug)]
pub(super) struct Protobuf<T, U>(ProstCodec<T, U>);

/// Reads `U`.
#[derive(Debug)]
pub(super) struct ProtobufReader<U>(ProstDecoder<U>);

impl<T, U> Default for Protobuf<T, U> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

impl<T, U> Codec for Protobuf<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProtobufReader<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        self.0.encoder()
    }

    fn decoder(&mut self) -> ProtobufReader<U> {
        ProtobufReader(self.0.decoder())
    }
}

impl<U: Message + Default> Decoder for ProtobufReader<U> {
    type Item = U;
    type Error = Status;

    #[inline]
    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let read = self.0.decode(bytes);
        read.map_err(|status| Status::invalid_argument(status.message()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}
