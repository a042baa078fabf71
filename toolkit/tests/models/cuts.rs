//! A stream that is cut anywhere never becomes a tool call.

use super::{APIS, fake, provider, request, streamed};
use flovyn_toolkit::fake_llm::{Cut, CutEnd, FaultKind, Script, Turn};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::provider::{Api, ErrorKind};
use serde_json::json;

/// More than any of the streams below is long.
const MOST: usize = 6_000;

fn turn() -> Turn {
    // Cut inside its last number, the arguments would still be JSON after a lenient repair, and wrong.
    let mut turn = Turn::call("bash", json!({"command": "rm -rf /tmp/build-cache", "timeout": 120})).thinking("ok");
    turn.text = Some("ä".into());
    turn
}

/// Plays one answer cut at each of these places, and expects nothing or the whole, and once whole always whole.
async fn sweep(api: Api, places: impl Iterator<Item = Cut>) -> (usize, usize) {
    let whole = {
        let fake = fake(Script::new([turn()]));
        let provider = provider(api, &fake);
        streamed(&provider, &request(&provider, vec![Message::user("?")])).await.0.expect("the whole answer")
    };
    let mut turn = turn();
    for place in places {
        turn = turn.fault(FaultKind::Cut(place));
    }
    let count = turn.faults.len();
    let fake = fake(Script::new([turn]));
    let provider = provider(api, &fake);
    let mut interrupted = 0;
    for number in 0..count {
        let (answer, _) = streamed(&provider, &request(&provider, vec![Message::user("?")])).await;
        match answer {
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Interrupted, "{api:?}, cut {number}: {error}");
                assert_eq!(interrupted, number, "{api:?}: cut {number} is interrupted after an earlier one was whole");
                interrupted += 1;
            }
            Ok(answer) => assert_eq!(answer.parts, whole.parts, "{api:?}, cut {number}"),
        }
    }
    assert_eq!(fake.paid(), 0, "a cut answer is none");
    (interrupted, count)
}

#[tokio::test]
async fn at_every_byte() {
    for api in APIS {
        let places = (0..MOST)
            .step_by(7)
            .chain(0..400)
            .map(|after_bytes| Cut { after_bytes: Some(after_bytes), ..Cut::default() });
        let mut places: Vec<Cut> = places.collect();
        places.sort_by_key(|cut| cut.after_bytes);
        let (interrupted, count) = sweep(api, places.into_iter()).await;
        assert!(interrupted > 400 && interrupted < count, "{api:?}: {interrupted} of {count} cuts were before the end");
    }
}

#[tokio::test]
async fn at_every_event_by_an_orderly_end_and_by_a_broken_connection() {
    for api in APIS {
        // A connection that breaks before its first event never answered: there is nothing to interrupt.
        for (end, first) in [(CutEnd::Clean, 0), (CutEnd::Broken, 1)] {
            let places = (first..60).map(|events| Cut { after_events: Some(events), after_bytes: None, end });
            let (interrupted, count) = sweep(api, places).await;
            assert!(
                interrupted > 6 && interrupted < count,
                "{api:?}: {interrupted} of {count} cuts were before the end"
            );
        }
    }
}
