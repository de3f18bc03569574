//! Drives a machine whose messages use HTTP: inputs from a channel, outputs to a handler.

use chappe_machine::{Input, Machine, Output, drain};
use chappe_transport::Clock;
use tokio::sync::mpsc;

/// One input of a machine.
pub(crate) type InputOf<M> = Input<<M as Machine>::Receive, <M as Machine>::Command>;

/// Handles the outputs of a machine.
pub(crate) trait OutputHandler<M: Machine> {
    /// Handles one output.
    fn handle(&mut self, output: Output<M::Transmit, M::Event>);

    /// Called after all outputs of an input.
    fn on_drained(&mut self, _: &M) {}
}

/// Runs `machine` until the input `None`, or until all senders are dropped.
pub(crate) async fn drive<M: Machine>(
    mut machine: M,
    mut inputs: mpsc::Receiver<Option<InputOf<M>>>,
    handler: &mut impl OutputHandler<M>,
) {
    let clock = Clock::process();
    let mut outputs = Vec::new();
    let mut deadline = machine.deadline();
    loop {
        let at = deadline.map(|deadline| clock.at(deadline));
        let input = tokio::select! {
            biased;
            () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                if at.is_some() => Input::Timeout,
            input = inputs.recv() => match input {
                Some(Some(input)) => input,
                Some(None) | None => return,
            },
        };
        deadline = drain(&mut machine, clock.now(), input, |output| {
            outputs.push(output)
        });
        for output in outputs.drain(..) {
            handler.handle(output);
        }
        handler.on_drained(&machine);
    }
}
