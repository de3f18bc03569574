//! Announces an entrance of the network by multicast: a target service of WS-Discovery that is not a device.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_dpws::discovery::target_service::{Command, Config};
use chappe_dpws::discovery::{Interface, TargetService};
use chappe_xml::Name;
use tokio::sync::mpsc;

use super::node::unix_s;
use crate::Drops;
use crate::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};

/// The longest delay before it announces itself and answers. Reason: there are few entrances.
const DELAY_MAX: Duration = Duration::from_millis(500);
/// Addresses of one entrance that are tried.
const ADDRESSES_MAX: usize = 16;

/// The type that identifies an entrance.
#[must_use]
pub fn entrance_type() -> Name {
    Name::new("https://chappe.example/ns", "KadNode")
}

/// The address of a node that answered a search from `from`, chosen from its transport addresses: only at the host
/// that answered.
#[must_use]
pub fn entrance(addresses: &[String], from: IpAddr) -> Option<SocketAddr> {
    let from = from.to_canonical();
    let mut named = addresses.iter().take(ADDRESSES_MAX).filter_map(|text| {
        let text = text.strip_prefix("udp://")?;
        text.trim_end_matches('/').parse::<SocketAddr>().ok()
    });
    named.find(|address| address.ip().to_canonical() == from && address.port() != 0)
}

/// Answers searches for entrances on these interfaces, until it is dropped. Returns if the sockets cannot be opened;
/// that is recorded in `drops`.
pub async fn announce(
    interfaces: Vec<Interface>,
    node: SocketAddr,
    endpoint: String,
    drops: Drops,
) {
    let fits = |ip: &IpAddr| match node.ip() {
        own if own.is_unspecified() => ip.is_ipv4() == own.is_ipv4() && !ip.is_loopback(),
        own => *ip == own,
    };
    // From another port: the discovery port belongs to the devices of this host.
    let options = UdpOptions::new(Role::Client);
    let mut announced = Vec::new();
    for interface in interfaces {
        let own = interface.addresses.iter().filter(|ip| fits(ip));
        let own = own.map(|ip| format!("udp://{}", SocketAddr::new(*ip, node.port())).into());
        let own: Vec<_> = own.collect();
        if !own.is_empty() {
            announced.push((interface, own));
        }
    }
    let interfaces: Vec<_> = announced.iter().map(|(one, _)| one.clone()).collect();
    let Ok(seed) = crate::seed_number() else {
        return;
    };
    // Nothing to announce, or recorded by the sockets.
    let Ok(sockets) = UdpSockets::bind(&interfaces, &options, &drops) else {
        return;
    };
    // Seconds fit until 2106.
    let instance = u32::try_from(unix_s()).unwrap_or(u32::MAX);
    let config = Config {
        types: vec![entrance_type()],
        interfaces: announced,
        app_max_delay: DELAY_MAX,
        ..Config::new(endpoint, instance, seed)
    };
    let (orders, receive_orders) = mpsc::channel(1);
    let (events, mut received) = mpsc::channel(64);
    let machine = TargetService::new(config);
    let running = run_udp(machine, sockets, receive_orders, events, drops);
    let started = async {
        let _ = orders.send(Order::Command(Command::Start)).await;
        while received.recv().await.is_some() {}
    };
    tokio::join!(running, started);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrance_is_at_the_host_that_answered() {
        let named = |text: &str| entrance(&[text.to_owned()], "192.0.2.7".parse().unwrap());
        let right = named("udp://192.0.2.7:8473");
        assert_eq!(right, Some("192.0.2.7:8473".parse().unwrap()));
        assert_eq!(named("udp://192.0.2.7:8473/"), right);
        for wrong in [
            "udp://192.0.2.8:8473",
            "udp://192.0.2.7:0",
            "http://192.0.2.7:8473",
            "udp://",
            "",
        ] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
