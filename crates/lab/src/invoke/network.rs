//! Where the two ends of a call are: on the loopback, or in two network namespaces with a cable of a given MTU and rate.

use std::process::Command;

use crate::Error;
use crate::exchange::namespace;
use crate::process::Process;

/// The addresses of the two ends of a cable.
const CLIENT: &str = "10.77.3.1";
const SERVER: &str = "10.77.3.2";
/// The loopback's address of servers. Reason: of this scenario alone.
const LOOPBACK: &str = "127.0.10.1";
/// The queue of a cable with a rate. Reason: it holds the largest message, so that nothing is lost and time goes as
/// bytes do.
const QUEUE_BYTES: &str = "262144";
/// What the cable sends at once. Reason: the largest frame, 1,500 bytes and its head.
const BURST_BYTES: &str = "1600";

/// A cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cable {
    /// The largest packet in bytes.
    pub(super) mtu: usize,
    /// Kilobits a second; without it, as fast as the machine.
    pub(super) rate_kbit: Option<usize>,
}

/// Where a server runs and can be reached.
pub(super) struct Place {
    pub(super) cable: Option<Cable>,
    /// The address that servers listen at.
    pub(super) address: &'static str,
    /// The namespace of the servers, which ends with this process.
    holder: Option<Process>,
}

impl Place {
    pub(super) fn loopback() -> Self {
        Self {
            cable: None,
            address: LOOPBACK,
            holder: None,
        }
    }

    /// Moves this thread to a namespace of its own, with a cable to another one for the servers.
    ///
    /// # Errors
    /// It is not permitted, or a program is missing: a reason to skip the part.
    pub(super) fn cable(cable: Cable) -> Result<Self, Error> {
        namespace::enter()?;
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo apart; exec sleep infinity"]);
        let mut holder = Process::start(&mut command, "a namespace for the servers")?;
        holder.line()?;
        let id = holder.id().to_string();
        let place = Self {
            cable: Some(cable),
            address: SERVER,
            holder: Some(holder),
        };
        let far = [
            "link", "add", "a0", "type", "veth", "peer", "name", "b0", "netns",
        ];
        run(Command::new("ip").args(far).arg(&id))?;
        place.end("a0", CLIENT, |command| command)?;
        place.end("b0", SERVER, |command| place.at_server(command))?;
        Ok(place)
    }

    /// Sets one end of the cable up.
    fn end(
        &self,
        interface: &str,
        address: &str,
        at: impl Fn(Command) -> Command,
    ) -> Result<(), Error> {
        let Some(cable) = self.cable else {
            return Ok(());
        };
        let mtu = cable.mtu.to_string();
        let address = format!("{address}/24");
        let mut steps: Vec<Vec<&str>> = vec![
            vec!["ip", "link", "set", "lo", "up"],
            vec!["ip", "addr", "add", &address, "dev", interface],
            vec!["ip", "link", "set", interface, "mtu", &mtu, "up"],
            // Otherwise the kernel passes larger packets than the MTU.
            vec![
                "ethtool", "-K", interface, "tso", "off", "gso", "off", "gro", "off",
            ],
        ];
        let rate = cable.rate_kbit.map(|rate| format!("{rate}kbit"));
        if let Some(rate) = &rate {
            let mut step = vec![
                "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate",
            ];
            step.extend([rate, "burst", BURST_BYTES, "limit", QUEUE_BYTES]);
            steps.push(step);
        }
        for step in steps {
            let mut command = Command::new(step[0]);
            command.args(&step[1..]);
            run(&mut at(command))?;
        }
        Ok(())
    }

    /// The command where the servers are.
    pub(super) fn at_server(&self, command: Command) -> Command {
        let Some(holder) = &self.holder else {
            return command;
        };
        let mut outer = Command::new("nsenter");
        outer.args(["-n", "-t"]).arg(holder.id().to_string());
        outer.arg(command.get_program()).args(command.get_args());
        outer
    }

    /// Its name in tables.
    pub(super) fn name(&self) -> String {
        match self.cable {
            None => "loopback".to_owned(),
            Some(Cable {
                mtu,
                rate_kbit: None,
            }) => format!("MTU {mtu}"),
            Some(Cable {
                mtu,
                rate_kbit: Some(rate),
            }) => format!("MTU {mtu}, {rate} kbit/s"),
        }
    }

    /// Bytes and packets that have reached the client, heads of Ethernet included, and those that it has sent.
    pub(super) fn traffic(&self) -> [u64; 4] {
        namespace::traffic("a0")
    }
}

fn run(command: &mut Command) -> Result<(), Error> {
    let what = format!("{command:?}");
    let output = command.output().map_err(Error::io(&what))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default().to_owned();
            Err(Error::Failed(format!("{what}: {last}")))
        }
    }
}

/// Does `work` on a thread of its own, which may move to another namespace; it has this thread's processor.
pub(super) fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(_) => Err(Error::Failed("the thread of a network panicked".to_owned())),
    })
}
