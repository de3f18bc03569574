//! The interfaces on which a host is announced, and the events of its target service.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, Weak};

use chappe_dpws::discovery::Interface;
use chappe_dpws::discovery::target_service::{Command, Event};
use chappe_transport::Hop;
use chappe_transport::http::{Request, Server};
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets};
use chappe_xml::Str;
use tokio::sync::{mpsc, watch};

use super::Shared;
use super::proxies::Posts;
use crate::Error;
use crate::client::note_drop;

/// Interfaces with their transport addresses.
pub(super) type Announced = Vec<(Interface, Vec<Str>)>;

/// Serves on every address of the interfaces, and on no other; one that works is sufficient.
pub(super) fn serve(shared: &Arc<Shared>, interfaces: &[Interface]) -> Result<Announced, Error> {
    let mut announced = Vec::new();
    let mut failure = None;
    let mut servers = shared
        .servers
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let wanted = |address: &IpAddr| {
        let mut interfaces = interfaces.iter();
        interfaces.any(|interface| interface.addresses.contains(address))
    };
    servers.retain(|address, _| wanted(address));
    for interface in interfaces {
        let mut xaddrs: Vec<Str> = Vec::new();
        for address in &interface.addresses {
            let local = match servers.get(address) {
                Some(server) => server.local_addr(),
                None => match server(shared, *address, interface.index) {
                    Ok(server) => {
                        let local = server.local_addr();
                        servers.insert(*address, server);
                        local
                    }
                    Err(source) => {
                        let at = Some(*address);
                        let error = Error::Listen { at, source };
                        let (detail, hint) = (error.to_string(), error.hint());
                        shared
                            .drops
                            .record(Hop::Network, error.reason(), address, detail, hint);
                        failure = Some(error);
                        continue;
                    }
                },
            };
            xaddrs.push(shared.options.address(local).into());
        }
        if !xaddrs.is_empty() {
            announced.push((interface.clone(), xaddrs));
        }
    }
    match failure {
        Some(error) if announced.is_empty() => Err(error),
        _ => Ok(announced),
    }
}

fn server(shared: &Arc<Shared>, address: IpAddr, zone: u32) -> std::io::Result<Server> {
    let mut at = SocketAddr::new(address, shared.options.port);
    if let (SocketAddr::V6(at), IpAddr::V6(ip)) = (&mut at, address)
        && ip.is_unicast_link_local()
    {
        at.set_scope_id(zone);
    }
    // Its connections must not keep the host alive, which ends them when it is dropped.
    let host = Arc::downgrade(shared);
    let lists = shared.tree.as_ref().map(super::tree::RunningSource::lists);
    let handler = move |request: Request| {
        let host = Weak::clone(&host);
        let list = lists.as_ref().and_then(|lists| lists.answer(&request));
        async move {
            match list {
                Some(list) => list,
                None => super::serving::answer(&host, request).await,
            }
        }
    };
    let mut limits = shared.options.server.clone();
    // A signature covers the text as it was written.
    limits.exi &= shared.options.signing.is_none();
    let understood = (shared.options.tls.as_ref(), shared.schemas.all());
    Server::bind_for_services(at, limits, understood, shared.drops.clone(), handler)
}

/// Handles the events of the target service, until it ends.
pub(super) async fn listen(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event>,
    said_bye: watch::Sender<bool>,
) {
    let mut posts = Posts::new(&shared);
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = posts.handle() => continue,
        };
        let Some(event) = event else {
            return;
        };
        match event {
            Event::Announcement { action, text } => posts.send(&action, &text),
            Event::Stopped => {
                posts.end().await;
                said_bye.send_replace(true);
            }
            Event::Dropped {
                reason,
                from,
                detail,
                suppressed,
            } => note_drop(&shared.drops, reason, from, detail, suppressed),
            _ => {}
        }
    }
}

/// Follows changes of the interfaces.
pub(super) async fn watch_interfaces(shared: Arc<Shared>, mut before: Vec<Interface>) {
    let options = UdpOptions::new(Role::Device);
    loop {
        tokio::time::sleep(shared.options.interfaces_period).await;
        let Ok(now) = shared.options.selection.resolve() else {
            continue;
        };
        if before == now {
            continue;
        }
        let Ok(sockets) = UdpSockets::bind(&now, &options, &shared.drops) else {
            continue;
        };
        let Ok(announced) = serve(&shared, &now) else {
            continue;
        };
        tracing::info!(?now, "the interfaces have changed");
        before = now;
        let command = Order::Command(Command::SetInterfaces(announced));
        for order in [Order::Sockets(sockets), command] {
            if shared.orders.send(order).await.is_err() {
                return;
            }
        }
    }
}
