//! Files of captures: pcap and pcapng, of either byte order.

use std::fmt;
use std::io::{self, Read};

/// Bytes of one packet. Reason: the largest that capturing programs write.
const PACKET_BYTES_MAX: u32 = 256 << 10;
/// Bytes of one block of pcapng that is read; others are skipped.
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Interfaces in a section of pcapng. Reason: hosts have some ten.
const INTERFACES_MAX: usize = 256;

const PCAP: u32 = 0xa1b2_c3d4;
const PCAP_NS: u32 = 0xa1b2_3c4d;
const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
/// The option of an interface with the unit of its times.
const OPTION_RESOLUTION: u16 = 9;

/// What the packets of an interface begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A header of Ethernet.
    Ethernet,
    /// The address family, four bytes (BSD loopback).
    Null,
    /// The header of IP.
    Ip,
    /// Linux's "any" interface, 16 bytes.
    Cooked,
    /// Linux's "any" interface, 20 bytes.
    Cooked2,
    /// Another, by its number.
    Other(u32),
}

impl Link {
    const fn of(number: u32) -> Self {
        match number {
            0 | 108 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            other => Self::Other(other),
        }
    }
}

/// A packet as it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds since 1970; 0 if the capture has no time.
    pub at_ns: u64,
    /// What it begins with.
    pub link: Link,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether the capture has only its start.
    pub is_cut: bool,
}

/// Why a capture cannot be read further.
#[derive(Debug)]
pub struct CaptureError {
    /// The byte of the file.
    pub offset: u64,
    /// The problem.
    pub problem: String,
    /// A remedy, if one is known.
    pub hint: Option<&'static str>,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the capture is unreadable at byte {}: {}",
            self.offset, self.problem
        )
    }
}

impl std::error::Error for CaptureError {}

/// The packets of a capture, in its order.
#[derive(Debug)]
pub struct Capture<R> {
    input: R,
    offset: u64,
    is_big: bool,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Pcap { link: Link, is_ns: bool },
    Pcapng { interfaces: Vec<Interface> },
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Link,
    snap: u32,
    /// Times a second.
    resolution: u64,
}

impl<R: Read> Capture<R> {
    /// Reads the head of a capture.
    ///
    /// # Errors
    /// It is neither pcap nor pcapng.
    pub fn open(input: R) -> Result<Self, CaptureError> {
        let mut capture = Self {
            input,
            offset: 0,
            is_big: false,
            format: Format::Pcapng {
                interfaces: Vec::new(),
            },
        };
        let mut magic = [0; 4];
        if !capture.fill(&mut magic)? {
            return Err(capture.error("it is empty"));
        }
        let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
        if little == SECTION {
            capture.section()?;
            return Ok(capture);
        }
        capture.is_big = [PCAP, PCAP_NS].contains(&big);
        if !capture.is_big && ![PCAP, PCAP_NS].contains(&little) {
            let mut error = capture.error("it is neither pcap nor pcapng");
            error.offset = 0;
            error.hint = Some("make one with: tcpdump -i any -w capture.pcap");
            return Err(error);
        }
        let head: [u8; 20] = capture.exactly()?;
        // The upper bits say whether frames end with a checksum.
        let link = Link::of(capture.u32(&head, 16) & 0x0fff_ffff);
        let is_ns = [little, big].contains(&PCAP_NS);
        capture.format = Format::Pcap { link, is_ns };
        Ok(capture)
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// The file is broken, or ends inside a packet.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CaptureError> {
        match self.format {
            Format::Pcap { link, is_ns } => self.record(link, is_ns),
            Format::Pcapng { .. } => loop {
                match self.block()? {
                    Block::Packet(frame) => return Ok(Some(frame)),
                    Block::Other => {}
                    Block::End => return Ok(None),
                }
            },
        }
    }

    /// A record of pcap.
    fn record(&mut self, link: Link, is_ns: bool) -> Result<Option<Frame>, CaptureError> {
        let mut head = [0; 16];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [seconds, fraction, captured, original] = [0, 4, 8, 12].map(|at| self.u32(&head, at));
        if captured > PACKET_BYTES_MAX {
            return Err(self.error(format!(
                "a packet of {captured} bytes; at most {PACKET_BYTES_MAX}"
            )));
        }
        let fraction = u64::from(fraction) * if is_ns { 1 } else { 1_000 };
        Ok(Some(Frame {
            at_ns: u64::from(seconds) * 1_000_000_000 + fraction,
            link,
            bytes: self.bytes(captured)?,
            is_cut: captured < original,
        }))
    }

    /// The rest of a section's head.
    fn section(&mut self) -> Result<(), CaptureError> {
        let head: [u8; 8] = self.exactly()?;
        let order: [u8; 4] = [head[4], head[5], head[6], head[7]];
        self.is_big = u32::from_be_bytes(order) == BYTE_ORDER;
        if !self.is_big && u32::from_le_bytes(order) != BYTE_ORDER {
            return Err(self.error("a section without byte order"));
        }
        let length = self.u32(&head, 0);
        let rest = self.length(length)?.checked_sub(4);
        let rest = rest.ok_or_else(|| self.error("a section that is too short"))?;
        self.skip(rest)?;
        self.format = Format::Pcapng {
            interfaces: Vec::new(),
        };
        Ok(())
    }

    /// The length of a block without its type and first length.
    fn length(&self, length: u32) -> Result<u32, CaptureError> {
        match length {
            12.. if length.is_multiple_of(4) => Ok(length - 8),
            _ => Err(self.error(format!("a block of {length} bytes"))),
        }
    }

    /// A block of pcapng.
    fn block(&mut self) -> Result<Block, CaptureError> {
        let mut kind = [0; 4];
        if !self.fill(&mut kind)? {
            return Ok(Block::End);
        }
        if u32::from_le_bytes(kind) == SECTION {
            self.section()?;
            return Ok(Block::Other);
        }
        let kind = self.u32(&kind, 0);
        let length: [u8; 4] = self.exactly()?;
        let length = self.u32(&length, 0);
        let rest = self.length(length)?;
        if ![INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, PACKET].contains(&kind) {
            self.skip(rest)?;
            return Ok(Block::Other);
        }
        if rest > BLOCK_BYTES_MAX {
            return Err(self.error(format!(
                "a block of {length} bytes; at most {BLOCK_BYTES_MAX}"
            )));
        }
        let mut body = self.bytes(rest)?;
        let end = body.split_off(body.len() - 4);
        if self.u32(&end, 0) != length {
            return Err(self.error("a block whose two lengths differ"));
        }
        let read = match kind {
            INTERFACE => self.interface(&body).map(|()| Block::Other),
            _ => self.packet(kind, &body).map(Block::Packet),
        };
        read.ok_or_else(|| self.error(format!("a block of type {kind} with broken content")))
    }

    fn interface(&mut self, body: &[u8]) -> Option<()> {
        let link = Link::of(u32::from(self.u16(body.get(..2)?, 0)));
        let snap = self.u32(body.get(4..8)?, 0);
        let mut resolution = 1_000_000;
        let mut options = body.get(8..)?;
        while let Some(head) = options.get(..4) {
            let (code, length) = (self.u16(head, 0), usize::from(self.u16(head, 2)));
            let value = options.get(4..4 + length)?;
            if code == OPTION_RESOLUTION {
                let unit = u32::from(*value.first()?);
                // The highest bit: powers of two instead of ten.
                resolution = match unit & 0x80 {
                    0 => 10_u64.checked_pow(unit)?,
                    _ => 1_u64.checked_shl(unit & 0x7f)?,
                };
            }
            if code == 0 {
                break;
            }
            options = options
                .get(4 + length.next_multiple_of(4)..)
                .unwrap_or_default();
        }
        let Format::Pcapng { interfaces } = &mut self.format else {
            return None;
        };
        if interfaces.len() == INTERFACES_MAX {
            return None;
        }
        interfaces.push(Interface {
            link,
            snap,
            resolution,
        });
        Some(())
    }

    fn packet(&self, kind: u32, body: &[u8]) -> Option<Frame> {
        let Format::Pcapng { interfaces } = &self.format else {
            return None;
        };
        if kind == SIMPLE_PACKET {
            let interface = interfaces.first()?;
            let original = self.u32(body.get(..4)?, 0);
            let snap = if interface.snap == 0 {
                u32::MAX
            } else {
                interface.snap
            };
            let captured = original.min(snap) as usize;
            return Some(Frame {
                at_ns: 0,
                link: interface.link,
                bytes: body.get(4..)?.get(..captured)?.to_vec(),
                is_cut: captured < original as usize,
            });
        }
        let head = body.get(..20)?;
        let index = match kind {
            PACKET => self.u32(head, 0) as usize,
            _ => usize::from(self.u16(head, 0)),
        };
        let [high, low, captured, original] = [4, 8, 12, 16].map(|at| self.u32(head, at));
        let interface = interfaces.get(index)?;
        let units = u128::from(high) << 32 | u128::from(low);
        let at_ns = units * 1_000_000_000 / u128::from(interface.resolution);
        if captured > PACKET_BYTES_MAX {
            return None;
        }
        Some(Frame {
            at_ns: u64::try_from(at_ns).ok()?,
            link: interface.link,
            bytes: body.get(20..)?.get(..captured as usize)?.to_vec(),
            is_cut: captured < original,
        })
    }

    /// Four bytes of a slice that has them.
    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        match self.is_big {
            true => u32::from_be_bytes(word),
            false => u32::from_le_bytes(word),
        }
    }

    /// Two bytes of a slice that has them.
    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        match self.is_big {
            true => u16::from_be_bytes(word),
            false => u16::from_le_bytes(word),
        }
    }

    /// Fills a buffer; false at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, CaptureError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.ended()),
                Ok(more) => {
                    filled += more;
                    self.offset += more as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error.to_string())),
            }
        }
        Ok(true)
    }

    fn exactly<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], CaptureError> {
        let mut bytes = [0; BYTES];
        match self.fill(&mut bytes)? {
            true => Ok(bytes),
            false => Err(self.ended()),
        }
    }

    fn bytes(&mut self, length: u32) -> Result<Vec<u8>, CaptureError> {
        let mut bytes = vec![0; length as usize];
        match bytes.is_empty() || self.fill(&mut bytes)? {
            true => Ok(bytes),
            false => Err(self.ended()),
        }
    }

    fn skip(&mut self, length: u32) -> Result<(), CaptureError> {
        let length = u64::from(length);
        let skipped = io::copy(&mut self.input.by_ref().take(length), &mut io::sink());
        let skipped = skipped.map_err(|error| self.error(error.to_string()))?;
        self.offset += skipped;
        match skipped == length {
            true => Ok(()),
            false => Err(self.ended()),
        }
    }

    fn ended(&self) -> CaptureError {
        let mut error = self.error("it ends inside a packet");
        error.hint = Some("the program that wrote it was stopped, or still writes");
        error
    }

    fn error(&self, problem: impl Into<String>) -> CaptureError {
        CaptureError {
            offset: self.offset,
            problem: problem.into(),
            hint: None,
        }
    }
}

enum Block {
    Packet(Frame),
    Other,
    End,
}
