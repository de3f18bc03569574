//! Confines a participant to the networks of its interfaces.
//!
//! The libraries send to any address that a remote participant announces, and their sockets receive from any
//! address. They have no option for this, so the system confines them: a socket filter drops packets from outside
//! the networks of the interfaces, and nothing is sent outside them: through no gateway (`SO_DONTROUTE`), and
//! through no other device if all interfaces are on one (`SO_BINDTODEVICE`, unprivileged since Linux 5.7).
//!
//! A library's sockets are recognized by the sizes of their buffers: while a participant is created these are a few
//! bytes below the maximum, with a different number for each participant.
//!
//! Out of scope: systems other than Linux, on which this does nothing.

use std::net::IpAddr;

/// The sizes of a participant's buffers, which identify its sockets.
pub(crate) struct Marks {
    pub(crate) send: usize,
    pub(crate) receive: usize,
}

impl Default for Marks {
    /// No mark: the largest size that the system grants, up to this limit.
    fn default() -> Self {
        Self {
            send: BUFFER_BYTES,
            receive: BUFFER_BYTES,
        }
    }
}

const BUFFER_BYTES: usize = 8 << 20;

/// Creates a participant that is confined to the networks of its interfaces. If the system does not allow that, a
/// warning is logged.
///
/// # Errors
/// The errors of `make`.
pub(crate) fn confined<T, E>(
    interfaces: &[IpAddr],
    make: impl FnOnce(&Marks) -> Result<T, E>,
) -> Result<T, E> {
    #[cfg(target_os = "linux")]
    return linux::confined(interfaces, make);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = interfaces;
        make(&Marks::default())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io;
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use nix::ifaddrs::getifaddrs;
    use nix::sys::socket::{setsockopt, sockopt};
    use socket2::{SockFilter, SockRef, Socket, Type};

    use super::{BUFFER_BYTES, Marks};
    use crate::unsafe_descriptor::duplicate;

    /// Participants that can be created at the same time.
    const MARKS: usize = 512;
    /// How long the library may take to open its sockets; reason: it may open some in a thread while the
    /// participant is created, so most exist at once.
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(5);
    /// Networks of one participant; reason: a jump of the filter spans at most 255 instructions.
    const PREFIXES_MAX: usize = 64;

    pub(super) fn confined<T, E>(
        interfaces: &[IpAddr],
        make: impl FnOnce(&Marks) -> Result<T, E>,
    ) -> Result<T, E> {
        let marks = marks();
        let made = make(marks.as_ref().unwrap_or(&Marks::default()))?;
        if let Err(error) = marks.and_then(|marks| confine(&marks, interfaces)) {
            tracing::warn!(
                %error,
                "DDS is not confined to the networks of its interfaces; use a packet filter or a namespace"
            );
        }
        Ok(made)
    }

    /// The marks of the next participant.
    fn marks() -> io::Result<Marks> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let probe = SockRef::from(&probe);
        probe.set_send_buffer_size(BUFFER_BYTES)?;
        probe.set_recv_buffer_size(BUFFER_BYTES)?;
        // Linux reports twice the requested size, and silently grants less.
        let less = 1 + NEXT.fetch_add(1, Ordering::Relaxed) % MARKS;
        Ok(Marks {
            send: (probe.send_buffer_size()? / 2).saturating_sub(less),
            receive: (probe.recv_buffer_size()? / 2).saturating_sub(less),
        })
    }

    /// Confines the sockets with these marks, and removes the marks.
    fn confine(marks: &Marks, interfaces: &[IpAddr]) -> io::Result<()> {
        let networks = Networks::of(interfaces)?;
        let until = Instant::now() + PATIENCE;
        let (mut sends, mut receives) = (false, false);
        while !(sends && receives) {
            if Instant::now() >= until {
                let text = "the library's sockets were not found";
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
            if sends || receives {
                std::thread::sleep(PAUSE);
            }
            for socket in datagram_sockets()? {
                let receiving = socket.recv_buffer_size()? == 2 * marks.receive;
                let sending = socket.send_buffer_size()? == 2 * marks.send;
                let address = socket.local_addr()?.as_socket();
                let to_all = address.is_some_and(|it| it.ip().is_unspecified());
                if receiving {
                    networks.limit_receiving(&socket)?;
                    socket.set_recv_buffer_size(BUFFER_BYTES)?;
                    receives = true;
                }
                if sending {
                    // A socket bound to all addresses only receives, also from other processes of this
                    // host, whose datagrams arrive by another device.
                    if !(receiving && to_all) {
                        networks.limit_sending(&socket)?;
                        // Other sockets may send multicast.
                        sends |= receiving || to_all;
                    }
                    socket.set_send_buffer_size(BUFFER_BYTES)?;
                }
            }
        }
        Ok(())
    }

    /// All UDP sockets of this process.
    fn datagram_sockets() -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let is_socket = target
                .as_os_str()
                .as_encoded_bytes()
                .starts_with(b"socket:");
            let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
            // A socket that was closed meanwhile is not the library's.
            let socket = number
                .filter(|_| is_socket)
                .and_then(|number| duplicate(number).ok())
                .map(Socket::from);
            sockets.extend(socket.filter(|it| it.r#type().ok() == Some(Type::DGRAM)));
        }
        Ok(sockets)
    }

    /// Network and mask.
    type Prefix = (u32, u32);

    /// The networks that the interfaces reach without a gateway.
    #[derive(Debug, PartialEq, Eq)]
    struct Networks {
        /// The device, if it is the same for all of them.
        device: Option<String>,
        /// Empty if one of them has no network of its own, like a tunnel.
        prefixes: Option<BTreeSet<Prefix>>,
    }

    impl Networks {
        fn of(interfaces: &[IpAddr]) -> io::Result<Self> {
            let known = getifaddrs()?.filter_map(|found| {
                let address = found.address?.as_sockaddr_in()?.ip();
                let mask = found.netmask.and_then(|it| Some(it.as_sockaddr_in()?.ip()));
                Some((
                    found.interface_name,
                    address,
                    mask.unwrap_or(Ipv4Addr::BROADCAST),
                ))
            });
            Ok(Self::among(interfaces, known))
        }

        /// `known`: device, address, mask.
        fn among(
            interfaces: &[IpAddr],
            known: impl Iterator<Item = (String, Ipv4Addr, Ipv4Addr)>,
        ) -> Self {
            let mut devices = BTreeSet::new();
            let mut prefixes = BTreeSet::new();
            for (device, address, mask) in known {
                if interfaces.contains(&IpAddr::V4(address)) {
                    devices.insert(device);
                    let mask = u32::from(mask);
                    prefixes.insert((u32::from(address) & mask, mask));
                }
            }
            let closed = prefixes.len() <= PREFIXES_MAX
                && !prefixes.is_empty()
                && prefixes.iter().all(|(_, mask)| *mask != u32::MAX);
            let one = devices.len() == 1;
            Self {
                device: devices.pop_first().filter(|_| one),
                prefixes: closed.then_some(prefixes),
            }
        }

        fn limit_sending(&self, socket: &Socket) -> io::Result<()> {
            setsockopt(socket, sockopt::DontRoute, &true)?;
            if let Some(device) = &self.device {
                socket.bind_device(Some(device.as_bytes()))?;
            }
            Ok(())
        }

        fn limit_receiving(&self, socket: &Socket) -> io::Result<()> {
            match &self.prefixes {
                Some(prefixes) => socket.attach_filter(&filter(prefixes)),
                None => Ok(()),
            }
        }
    }

    /// A program that accepts packets from one of these networks and drops the rest.
    ///
    /// Source: the kernel's `Documentation/networking/filter.rst`, for the instructions; RFC 791, 3.1, for
    /// the offset of the source address.
    fn filter(prefixes: &BTreeSet<Prefix>) -> Vec<SockFilter> {
        const LOAD_WORD: u16 = 0x20;
        const AND: u16 = 0x54;
        const JUMP_IF_EQUAL: u16 = 0x15;
        const TO_X: u16 = 0x07;
        const FROM_X: u16 = 0x87;
        const RETURN: u16 = 0x06;
        /// The offset of the network header.
        const NETWORK: u32 = -0x10_0000_i32 as u32;
        const SOURCE: u32 = 12;
        let step = |code, k| SockFilter::new(code, 0, 0, k);
        let mut program = vec![step(LOAD_WORD, NETWORK + SOURCE), step(TO_X, 0)];
        for (at, (network, mask)) in prefixes.iter().enumerate() {
            // The refusal follows the last comparison, and the acceptance follows the refusal.
            let behind = 3 * (prefixes.len() - 1 - at) + 1;
            program.push(step(FROM_X, 0));
            program.push(step(AND, *mask));
            program.push(SockFilter::new(JUMP_IF_EQUAL, behind as u8, 0, *network));
        }
        program.push(step(RETURN, 0));
        program.push(step(RETURN, u32::MAX));
        program
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn known() -> impl Iterator<Item = (String, Ipv4Addr, Ipv4Addr)> {
            [
                ("lo", [127, 0, 0, 1], [255, 0, 0, 0]),
                ("eth0", [10, 1, 0, 5], [255, 255, 255, 0]),
                ("eth0", [10, 1, 7, 5], [255, 255, 255, 0]),
                ("tun0", [10, 9, 0, 1], [255, 255, 255, 255]),
            ]
            .into_iter()
            .map(|(device, address, mask)| (device.to_owned(), address.into(), mask.into()))
        }

        #[test]
        fn networks_are_those_of_the_interfaces() {
            let of = |interfaces: &[[u8; 4]]| {
                let interfaces: Vec<IpAddr> =
                    interfaces.iter().map(|it| IpAddr::from(*it)).collect();
                let networks = Networks::among(&interfaces, known());
                (networks.device, networks.prefixes.map(|it| it.len()))
            };
            let on = |device: &str| Some(device.to_owned());
            assert_eq!(of(&[[127, 0, 0, 1]]), (on("lo"), Some(1)));
            assert_eq!(of(&[[10, 1, 0, 5], [10, 1, 7, 5]]), (on("eth0"), Some(2)));
            assert_eq!(of(&[[10, 1, 0, 5], [127, 0, 0, 1]]), (None, Some(2)));
            assert_eq!(of(&[[10, 9, 0, 1]]), (on("tun0"), None));
            assert_eq!(of(&[[10, 8, 0, 1]]), (None, None));
        }

        #[test]
        fn a_filter_drops_packets_from_elsewhere() {
            let receive = |networks: &[(Ipv4Addr, u32)]| {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                let mask = |bits: u32| u32::MAX << (32 - bits);
                let prefixes = networks.iter().map(|(network, bits)| {
                    let mask = mask(*bits);
                    (u32::from(*network) & mask, mask)
                });
                let networks = Networks {
                    device: None,
                    prefixes: Some(prefixes.collect()),
                };
                networks
                    .limit_receiving(&Socket::from(socket.try_clone().unwrap()))
                    .unwrap();
                // A loopback datagram has arrived when the call returns.
                socket.set_nonblocking(true).unwrap();
                [1, 2].map(|host| {
                    let sender = UdpSocket::bind((Ipv4Addr::new(127, 0, host, 1), 0)).unwrap();
                    sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                    socket.recv(&mut [0; 8]).is_ok()
                })
            };
            let net = |c| (Ipv4Addr::new(127, 0, c, 9), 24);
            assert_eq!(receive(&[net(1), net(2)]), [true, true]);
            assert_eq!(receive(&[net(1)]), [true, false]);
            assert_eq!(receive(&[net(2), net(3)]), [false, true]);
            assert_eq!(receive(&[net(3), net(4), net(5)]), [false, false]);
            assert_eq!(receive(&[(Ipv4Addr::LOCALHOST, 8)]), [true, true]);
        }
    }
}
