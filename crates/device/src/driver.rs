//! Drives a machine whose messages come by HTTP: inputs by a channel, outputs by a closure.

use chappe_machine::{Input, Machine, Output, drain};
use chappe_transport::Clock;
use tokio::sync::mpsc;

/// One input of a machine.
pub(crate) type InputOf<M> = Input<<M as Machine>::Receive, <M as Machine>::Command>;

/// Takes what a machine says.
pub(crate) trait Take<M: Machine> {
    /// One output.
    fn take(&mut self, output: Output<M::Transmit, M::Event>);

    /// All outputs of an input are taken.
    fn settled(&mut self, _: &M) {}
}

/// Runs `machine` until it is given `None`, or the senders are gone.
pub(crate) async fn drive<M: Machine>(
    mut machine: M,
    mut inputs: mpsc::Receiver<Option<InputOf<M>>>,
    taker: &mut impl Take<M>,
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
            taker.take(output);
        }
        taker.settled(&machine);
    }
}
