//! Takes messages that clients send to the node by POST, and answers once they are stored.

use std::collections::VecDeque;

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    Batch, Condition, Delivery, Inbound, Mark, Receipt, ShareExceeded, Step, Wrapper, WrapperError,
    WrapperFile, WrapperKind, WrapperOpening,
};

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "webhook",
    about: "messages that clients send to `POST /api/v1/wrappers/NAME/messages`",
    delivery: Delivery {
        acknowledges: "with status 200, after the message is stored",
        resumes: "the sender repeats what was not answered",
        may_double: "a message whose answer was lost",
        may_miss: "no, if the sender repeats",
        back_pressure: "status 503 with `Retry-After`",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `webhook`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {}

fn settings(file: &WrapperFile) -> Result<Decoder, DescriptorError> {
    let Settings {} = file.settings()?;
    Decoder::new(file, &[])
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let decoder =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    opening.condition.waits("no message has arrived");
    Ok(Box::new(Webhook {
        decoder,
        inbox: opening.inbox,
        answers: VecDeque::new(),
        taken: 0,
        condition: opening.condition,
    }))
}

struct Webhook {
    decoder: Decoder,
    inbox: mpsc::Receiver<Inbound>,
    /// Those that wait for an answer, with the number of their batch.
    answers: VecDeque<Answer>,
    /// Batches so far.
    taken: u64,
    condition: Condition,
}

/// A sender that waits.
struct Answer {
    /// The number of the batch.
    number: u64,
    reply: oneshot::Sender<Result<Receipt, ShareExceeded>>,
    receipt: Receipt,
}

impl Wrapper for Webhook {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            let none = || WrapperError::peer("only a running node receives messages");
            // One message a batch, so that what is refused of a batch is of that message.
            let Inbound {
                body,
                sender,
                reply,
                ..
            } = self.inbox.recv().await.ok_or_else(none)?;
            self.condition.runs();
            self.taken += 1;
            let mut batch = Batch {
                // The number within this run: a new run has nobody left to answer.
                mark: Mark::new(self.taken.to_le_bytes().to_vec()).unwrap_or_default(),
                sender: Some(sender),
                ..Batch::default()
            };
            self.decoder.message(&body, now(), &mut batch);
            let receipt = Receipt {
                elements: batch.elements() as u64,
                undecodable: batch.undecodable.len() as u64,
                ..Receipt::default()
            };
            self.answers.push_back(Answer {
                number: self.taken,
                reply,
                receipt,
            });
            Ok(batch)
        })
    }

    fn refused(&mut self, mark: &Mark, elements: u64) {
        let number = number(mark);
        let mut answers = self.answers.iter_mut();
        if let Some(Answer { receipt, .. }) = answers.find(|one| one.number == number) {
            receipt.elements = receipt.elements.saturating_sub(elements);
            receipt.refused += elements;
        }
    }

    fn exceeded(&mut self, mark: &Mark, exceeded: ShareExceeded) {
        let number = number(mark);
        let at = self.answers.iter().position(|one| one.number == number);
        if let Some(answer) = at.and_then(|at| self.answers.remove(at)) {
            // The sender may have gone.
            let _ = answer.reply.send(Err(exceeded));
        }
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        let stored = number(mark);
        while self.answers.front().is_some_and(|one| one.number <= stored) {
            if let Some(answer) = self.answers.pop_front() {
                // The sender may have gone.
                let _ = answer.reply.send(Ok(answer.receipt));
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The number of a batch.
fn number(mark: &Mark) -> u64 {
    mark.bytes().try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;

    #[tokio::test]
    async fn a_sender_is_answered_after_its_message_is_stored() {
        let file = wrapper_file(
            "kind = \"webhook\"\nformat = \"json\"\n[[stream]]\nname = \"a\"\n\
             fields = [{ name = \"value\", type = \"integer\" }]\n",
        );
        let (send, inbox) = mpsc::channel(8);
        let mut wrapper = open(WrapperOpening {
            file: &file,
            mark: None,
            condition: Condition::default(),
            notes: Default::default(),
            drops: Default::default(),
            inbox,
        })
        .unwrap();
        let mut answers = Vec::new();
        for body in ["{\"value\": 1}", "{\"value\": 2}", "no", "{\"value\": 4}"] {
            let (reply, answer) = oneshot::channel();
            let message = Inbound {
                body: body.as_bytes().to_vec(),
                form: Default::default(),
                sender: crate::Sender {
                    account: "logger".into(),
                    definitions_max: Some((1, 100)),
                },
                reply,
            };
            send.send(message).await.unwrap();
            answers.push(answer);
        }
        let mut batches = Vec::new();
        for _ in 0..4 {
            batches.push(wrapper.next().await.unwrap());
        }
        assert!(answers[0].try_recv().is_err(), "nothing is stored yet");
        // The second one does not fit its stream.
        wrapper.refused(&batches[1].mark, 1);
        let sender = batches[3].sender.as_ref().unwrap();
        assert_eq!(
            (&*sender.account, sender.definitions_max),
            ("logger", Some((1, 100)))
        );
        let exceeded = ShareExceeded {
            definition_bytes: 9,
        };
        wrapper.exceeded(&batches[3].mark, exceeded);
        wrapper.stored(&batches[2].mark).await.unwrap();
        let receipts = answers.iter_mut().map(|it| it.try_recv().unwrap());
        let receipts: Vec<_> = receipts
            .map(|it| it.map(|it| (it.elements, it.undecodable, it.refused)))
            .collect();
        let expected = [Ok((1, 0, 0)), Ok((0, 0, 1)), Ok((0, 1, 0)), Err(exceeded)];
        assert_eq!(receipts, expected);
        drop(send);
        assert!(wrapper.next().await.is_err());
    }
}
