//! One event sink for each dialect, one server for each local address.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use chappe_dpws::Dialect;
use chappe_dpws::eventing::{EventSink, SinkCommand, SinkConfig};
use chappe_identity::{Contact, Scheme};
use chappe_transport::http::{Request, Server, base};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::outputs::{SinkOutputs, run};
use super::sink::Sink;
use crate::Error;
use crate::client::tree::TreeNode;
use crate::client::{Shared, posted};

/// Inputs queued for a machine.
const INPUTS_MAX: usize = 1_024;

/// The subscriptions of one client and their servers.
#[derive(Default)]
pub(in crate::client) struct Sinks {
    pub(in crate::client) by_dialect: HashMap<Dialect, (Arc<Sink>, JoinHandle<()>)>,
    servers: HashMap<(IpAddr, Scheme), Server>,
    /// Nodes of notification trees, one for each local address.
    trees: HashMap<IpAddr, Arc<TreeNode>>,
    pub(super) next_key: u64,
    /// The hosts whose subscriptions are being verified.
    pub(super) verifying: HashSet<IpAddr>,
}

impl Sinks {
    pub(super) fn sink(
        &mut self,
        shared: &Arc<Shared>,
        dialect: Dialect,
    ) -> Result<Arc<Sink>, Error> {
        if let Some(sink) = self.by_dialect.get(&dialect) {
            return Ok(Arc::clone(&sink.0));
        }
        let path = match dialect {
            Dialect::V2009 => "/events",
            Dialect::V2005 => "/events-2005",
        };
        let config = SinkConfig {
            path: path.into(),
            dialect,
            utc_at_origin_ns: Some(crate::http::utc_at_origin_ns()),
            ..SinkConfig::default()
        };
        let weak = Arc::downgrade(shared);
        let check = move |address: &str, peer| {
            let shared = weak
                .upgrade()
                .ok_or_else(|| "the client is closed".to_owned())?;
            let checked = shared.known.check(&shared.options.policy, address, peer);
            checked.map(drop).map_err(|refusal| refusal.to_string())
        };
        let secret = crate::http::secret()?;
        let machine = EventSink::new(config, Arc::new(check), secret);
        let (inputs, receive) = mpsc::channel(INPUTS_MAX);
        let sink = Arc::new(Sink {
            inputs,
            path,
            state: Mutex::default(),
        });
        let outputs = SinkOutputs {
            sink: Arc::downgrade(&sink),
            shared: Arc::downgrade(shared),
            notification: None,
            requests: JoinSet::new(),
        };
        let running = tokio::spawn(run(machine, receive, outputs));
        self.by_dialect
            .insert(dialect, (Arc::clone(&sink), running));
        Ok(sink)
    }

    /// The node of notification trees on `local`, if trees are enabled.
    pub(super) fn tree(
        &mut self,
        shared: &Arc<Shared>,
        local: IpAddr,
    ) -> Result<Option<Arc<TreeNode>>, Error> {
        let Some(options) = &shared.options.tree else {
            return Ok(None);
        };
        if let Some(tree) = self.trees.get(&local) {
            return Ok(Some(Arc::clone(tree)));
        }
        let tree = TreeNode::start(options, local, Arc::downgrade(shared), &shared.drops)?;
        self.trees.insert(local, Arc::clone(&tree));
        Ok(Some(tree))
    }

    /// Scheme, host and port of the server on `local` for a device, which is started on demand. A device with
    /// TLS sends its events with TLS.
    pub(super) fn base(
        &mut self,
        shared: &Arc<Shared>,
        local: IpAddr,
        device: &Contact,
    ) -> Result<String, Error> {
        let (scheme, peer) = (device.scheme, device.address);
        if let Some(server) = self.servers.get(&(local, scheme)) {
            return Ok(base(scheme, server.local_addr()));
        }
        let security = match (scheme, &shared.options.tls) {
            (Scheme::Http, _) => None,
            (Scheme::Https, Some(security)) if security.serves() => Some(security),
            (Scheme::Https, _) => return Err(Error::NoCertificate),
        };
        let mut address = SocketAddr::new(local, 0);
        if let (SocketAddr::V6(address), SocketAddr::V6(peer)) = (&mut address, peer) {
            address.set_scope_id(peer.scope_id());
        }
        let weak = Arc::downgrade(shared);
        let handler = move |request: Request| {
            let weak = Weak::clone(&weak);
            async move { posted::receive(&weak, request).await }
        };
        let limits = shared.options.notifications.clone();
        let at = Some(local);
        let understood = (security, &shared.schemas);
        let drops = shared.drops.clone();
        let server = Server::bind_for_services(address, limits, understood, drops, handler)
            .map_err(|source| Error::Listen { at, source })?;
        let base = base(scheme, server.local_addr());
        self.servers.insert((local, scheme), server);
        Ok(base)
    }

    /// Ends all subscriptions and gives devices a moment to learn of it.
    pub(in crate::client) async fn close(self) {
        for (sink, running) in self.by_dialect.into_values() {
            sink.command(SinkCommand::Stop).await;
            let _ = sink.inputs.send(None).await;
            let _ = running.await;
            sink.close();
        }
    }

    /// Ends without notifying devices.
    pub(in crate::client) fn abandon(&mut self) {
        for (sink, running) in self.by_dialect.values() {
            running.abort();
            sink.close();
        }
    }
}
