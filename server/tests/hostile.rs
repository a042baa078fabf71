//! Every gRPC method against well-formed messages of any content: it answers or refuses, it never breaks.
//!
//! `SCALE` multiplies the number of rounds; a failure names its seed, and `SEED` runs it alone.

mod house;

use flovyn_core::storage::conformance::random::Random;
use flovyn_core::testing::hostile::{Method, Shapes};
use futures::stream;
use house::{House, TOKEN};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Bytes as they are.
#[derive(Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = usize;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, &item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = usize;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<usize>, Status> {
        let length = bytes::Buf::remaining(from);
        bytes::Buf::advance(from, length);
        Ok(Some(length))
    }
}

/// Calls a method and reads a little of what it answers. A stream that goes on was opened.
async fn call(channel: &Channel, method: &Method, messages: Vec<Vec<u8>>) -> Code {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the server is there");
    let mut request = Request::new(stream::iter(messages));
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let path: PathAndQuery = method.path.parse().unwrap();
    let asked = async {
        let mut answers = client.streaming(request, path, Plain).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    match tokio::time::timeout(Duration::from_millis(100), asked).await {
        Ok(Err(status)) => {
            let broken = [Code::Internal, Code::Unknown, Code::Unavailable, Code::DataLoss, Code::Cancelled];
            assert!(!broken.contains(&status.code()), "{}: {status:?}", method.path);
            status.code()
        }
        _ => Code::Ok,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_breaks_a_method() {
    let shapes = Shapes::new();
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..12 * number("SCALE").unwrap_or(1),
    };
    let mut met: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    for seed in seeds {
        println!("SEED={seed}");
        // What one call leaves behind, the next ones meet.
        let house = House::open().await;
        let channel = Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap();
        let mut random = Random(seed);
        for _ in 0..300 {
            let method = random.pick(shapes.methods()).expect("there are methods").clone();
            let count = if method.streams { random.below(4) } else { 1 };
            let messages = (0..count).map(|_| shapes.make(&method.input, &mut random)).collect();
            let code = call(&channel, &method, messages).await;
            *met.entry(method.path).or_default().entry(format!("{code:?}")).or_default() += 1;
        }
    }
    println!("{met:#?}");
    let answered = met.values().filter(|codes| codes.contains_key("Ok")).count();
    assert!(number("SEED").is_some() || answered * 3 > met.len(), "too little gets past the first check: {met:#?}");
}
