//! The wrapper: batches of the poller, and commands to it.

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::commands::Commands;
use super::map::{Map, Settings};
use super::poller::{Order, Poller};
use crate::{
    Batch, Command, Condition, Delivery, Notes, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// Batches that wait to be stored; for one more nothing is polled. 16: some polls of other devices while one is stored.
pub(super) const BATCHES: usize = 16;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "modbus",
    about: "registers of Modbus devices, over TCP or a serial line",
    delivery: Delivery {
        acknowledges: "never: reading changes nothing",
        resumes: "the next poll",
        may_double: "no",
        may_miss: "polls while the node is down, and polls without an answer, which are counted with their reason",
        back_pressure: "nothing is polled while storing lags; the periods are counted as `overrun`",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(super::browse::browse),
};

fn settings(file: &WrapperFile) -> Result<(Map, Commands), chappe_stream::DescriptorError> {
    let map = Map::of(file)?;
    let commands = Commands::of(file, &map)?;
    Ok((map, commands))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (map, commands) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(ModbusWrapper {
        map,
        commands,
        condition: opening.condition,
        notes: opening.notes,
        polling: None,
    }))
}

struct ModbusWrapper {
    map: Map,
    commands: Commands,
    condition: Condition,
    notes: Notes,
    polling: Option<Polling>,
}

/// The task that polls; it ends with this.
struct Polling {
    batches: mpsc::Receiver<Batch>,
    orders: mpsc::Sender<Order>,
    task: AbortHandle,
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ModbusWrapper {
    fn polling(&mut self) -> &mut Polling {
        self.polling.get_or_insert_with(|| {
            let (to_wrapper, batches) = mpsc::channel(BATCHES);
            let (orders, to_poller) = mpsc::channel(1);
            let poller = Poller::new(self.map.clone(), self.condition.clone(), self.notes.clone());
            let task = tokio::spawn(poller.run(to_wrapper, to_poller)).abort_handle();
            Polling {
                batches,
                orders,
                task,
            }
        })
    }
}

impl Wrapper for ModbusWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            let batches = &mut self.polling().batches;
            loop {
                let batch = batches.recv().await;
                let batch = batch.ok_or_else(|| WrapperError::peer("polling has ended"))?;
                if batch.elements() > 0 || !batch.lost.is_empty() {
                    return Ok(batch);
                }
            }
        })
    }

    fn command<'a>(&'a mut self, command: &'a Command) -> Step<'a, Result<Value, WrapperError>> {
        Box::pin(async move {
            let write = self.commands.write(command)?;
            let (unit_id, span) = (write.unit_id, write.span);
            let ended = || WrapperError::Command("polling has ended".to_owned());
            let (reply, answer) = oneshot::channel();
            let orders = &self.polling().orders;
            let order = Order { write, reply };
            orders.send(order).await.map_err(|_| ended())?;
            match answer.await.map_err(|_| ended())? {
                Ok(()) => Ok(json!({ "acknowledged": true })),
                Err(failure) => {
                    let text = format!("unit {unit_id}, {span}: {failure}");
                    Err(WrapperError::Command(text))
                }
            }
        })
    }
}
