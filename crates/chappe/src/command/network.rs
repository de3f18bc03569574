//! Shared by the verbs that use the network.

use chappe_dpws::Dialect;
pub(crate) use chappe_terminal::interrupt::{interrupted, stop_at_interrupt};
use chappe_transport::Interface;

use crate::output::{Failure, Outcome};

/// Runs a command on one thread.
pub(crate) fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(command);
    runtime.shutdown_background();
    outcome
}

/// The named interfaces, or all usable ones.
pub(crate) fn interfaces(names: &[String]) -> Result<Vec<Interface>, Failure> {
    let all = chappe_transport::interfaces()?;
    for name in names {
        match all.iter().find(|interface| interface.name == *name) {
            Some(interface) if interface.usable() => {}
            Some(_) => {
                return Err(
                    Failure::new(format!("interface {name} is not usable for discovery"))
                        .coded("interface_unusable")
                        .hint(format!("find out why: chappe doctor --interface {name}")),
                );
            }
            None => {
                let known: Vec<_> = all
                    .iter()
                    .map(|interface| interface.name.as_str())
                    .collect();
                return Err(Failure::new(format!("no interface {name}"))
                    .coded("interface_unusable")
                    .hint(format!("interfaces: {}", known.join(", "))));
            }
        }
    }
    let wanted = |interface: &Interface| {
        interface.usable() && (names.is_empty() || names.contains(&interface.name))
    };
    let found: Vec<_> = all.into_iter().filter(wanted).collect();
    if found.is_empty() {
        return Err(Failure::new("no interface is usable for discovery")
            .coded("interface_unusable")
            .hint("find out why: chappe doctor"));
    }
    Ok(found)
}

/// The interfaces for discovery. Most systems carry no IPv6 multicast on loopback.
pub(crate) fn of_discovery(interfaces: &[Interface]) -> Vec<chappe_dpws::discovery::Interface> {
    let convert = |interface: &Interface| {
        let addresses = interface.addresses.iter().map(|(address, _)| *address);
        chappe_dpws::discovery::Interface {
            index: interface.index,
            addresses: addresses
                .filter(|a| a.is_ipv4() || !interface.loopback)
                .collect(),
        }
    };
    interfaces.iter().map(convert).collect()
}

/// A dialect as users know it.
pub(crate) fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V2005 => "2005",
        Dialect::V2009 => "2009",
    }
}
