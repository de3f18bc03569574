//! The processes of a run: started together, given orders, and ended whatever happens.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::Kind;
use super::message::{Answer, Counted, Measured, Order, Progress, Role};
use super::namespace;
use super::station::now;
use crate::process::{own_process, processor_s};
use crate::{Error, Settings};

/// Time limit for all processes to start.
const STARTING: Duration = Duration::from_secs(120);
/// Time limit for an answer.
const ANSWERING: Duration = Duration::from_secs(60);
/// Time limit for the first elements through all links.
const FIRST: Duration = Duration::from_secs(90);
/// Time limit for elements in flight to arrive after the producers have paused.
const SETTLING: Duration = Duration::from_secs(60);
/// Time limit for storing a backlog.
const FILLING: Duration = Duration::from_secs(600);
/// Time from an order until all start together.
const AHEAD: i64 = 300_000_000;
/// Nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The measurements of all processes between the same two times.
#[derive(Debug, Default)]
pub(crate) struct Combined {
    /// Of each process.
    pub(crate) measured: Vec<Measured>,
    /// Bytes that crossed the loopback.
    pub(crate) wire_bytes: u64,
    /// Packets that crossed it.
    pub(crate) wire_packets: u64,
    /// Processors that were busy with the processes, second by second.
    pub(crate) processors: Vec<f64>,
    /// Megabits that crossed the loopback, second by second.
    pub(crate) wire_mbit: Vec<f64>,
}

/// Running processes of one kind.
pub(crate) struct Cluster {
    pub(crate) nodes: usize,
    members: Vec<Member>,
    answers: Receiver<(usize, Answer)>,
    before: Vec<u64>,
}

struct Member {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // It ends when its input ends; a hanging process is killed.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cluster {
    /// Starts the processes, connects them, and sends first elements through every link.
    pub(crate) fn start(
        settings: &Settings,
        kind: Kind,
        nodes: usize,
        folder: &Path,
    ) -> Result<Self, Error> {
        let (sender, answers) = channel();
        let mut cluster = Self {
            nodes,
            members: Vec::with_capacity(nodes),
            answers,
            before: vec![0; nodes],
        };
        // Three of the received streams are timed at each node: every pair in eight.
        let timed = |index: usize| -> Vec<usize> {
            let step = (nodes / 3).max(1);
            let shift = index + usize::try_from(settings.seed % 1_000).unwrap_or(0);
            (0..nodes.min(3))
                .map(|n| (shift + n * step) % nodes)
                .collect()
        };
        for index in 0..nodes {
            let role = Role {
                index,
                nodes,
                folder: folder.join(format!("node-{index:02}")),
                kind,
                timed: timed(index),
            };
            let member = Member::start(&role, sender.clone())?;
            cluster.members.push(member);
            // One after another: in parallel, the start of each would be slower.
            cluster.gather(STARTING, 1, |answer| {
                matches!(answer, Answer::Ready).then_some(())
            })?;
        }
        cluster.tell(&Order::Connect)?;
        cluster.all(STARTING, |answer| {
            matches!(answer, Answer::Connected).then_some(())
        })?;
        cluster.first_elements()?;
        Ok(cluster)
    }

    /// Produces a few elements repeatedly until some have come through every link.
    fn first_elements(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            self.produce(Duration::from_millis(100))?;
            std::thread::sleep(Duration::from_millis(500));
            self.tell(&Order::Pause)?;
            let progress = self.progress()?;
            let all = |one: &Progress| one.reached.iter().all(|reached| *reached > 0);
            if progress.iter().all(all) {
                break;
            }
            if begin.elapsed() > FIRST {
                let missing: usize = progress
                    .iter()
                    .map(|one| one.reached.iter().filter(|reached| **reached == 0).count())
                    .sum();
                let what = format!("no element comes through {missing} of the links");
                return Err(Error::Failed(what));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        self.settle()?;
        let progress = self.progress()?;
        self.before = progress.iter().map(|one| one.yielded).collect();
        Ok(())
    }

    /// Lets every node produce an element each `period` from now on.
    pub(crate) fn produce(&mut self, period: Duration) -> Result<(), Error> {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let spread = i64::try_from(period).unwrap_or(0) / i64::try_from(self.nodes).unwrap_or(1);
        let begin = now() + AHEAD;
        for index in 0..self.members.len() {
            // Not all in the same instant: devices are not.
            let from = begin + spread * i64::try_from(index).unwrap_or(0);
            self.members[index].tell(&Order::Produce { from, period })?;
        }
        Ok(())
    }

    /// Stops all producers.
    pub(crate) fn pause(&mut self) -> Result<(), Error> {
        self.tell(&Order::Pause)
    }

    /// Measures for a time, all together.
    pub(crate) fn measure(&mut self, length: Duration) -> Result<Combined, Error> {
        let from = now() + AHEAD;
        let until = from + i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        self.tell(&Order::Measure { from, until })?;
        let wait = |until: i64| {
            let ahead = u64::try_from(until - now()).unwrap_or(0);
            std::thread::sleep(Duration::from_nanos(ahead));
            (namespace::loopback(), self.processor_s())
        };
        let (mut processors, mut wire_mbit) = (Vec::new(), Vec::new());
        let (begin, mut busy) = wait(from);
        let (mut end, mut time) = (begin, from);
        while time < until {
            time = (time + SECOND).min(until);
            let (wire, now_busy) = wait(time);
            wire_mbit.push((wire.0 - end.0) as f64 * 8.0 / 1e6);
            processors.push(now_busy - busy);
            (end, busy) = (wire, now_busy);
        }
        let measured = self.all(ANSWERING, |answer| match answer {
            Answer::Measured(measured) => Some(measured),
            _ => None,
        })?;
        Ok(Combined {
            measured,
            wire_bytes: end.0 - begin.0,
            wire_packets: end.1 - begin.1,
            processors,
            wire_mbit,
        })
    }

    /// Processor time of all processes so far.
    fn processor_s(&self) -> f64 {
        let members = self.members.iter();
        members.map(|member| processor_s(member.child.id())).sum()
    }

    /// The number of elements that each has produced and received so far.
    pub(crate) fn progress(&mut self) -> Result<Vec<Progress>, Error> {
        self.tell(&Order::Report)?;
        self.all(ANSWERING, |answer| match answer {
            Answer::Progress(progress) => Some(progress),
            _ => None,
        })
    }

    /// Waits until everything has arrived, or nothing arrives any more. How long it took.
    pub(crate) fn settle(&mut self) -> Result<Duration, Error> {
        const STEP: Duration = Duration::from_millis(500);
        const QUIET: u32 = 6;
        let begin = Instant::now();
        let (mut before, mut quiet) = (Vec::new(), 0);
        while begin.elapsed() < SETTLING && quiet < QUIET {
            let progress = self.progress()?;
            let whole = progress.iter().all(|one| {
                let reached = one.reached.iter().zip(&progress);
                reached
                    .into_iter()
                    .all(|(reached, origin)| *reached >= origin.yielded)
            });
            if whole {
                break;
            }
            quiet = if progress == before { quiet + 1 } else { 0 };
            before = progress;
            std::thread::sleep(STEP);
        }
        Ok(begin.elapsed())
    }

    /// Cuts the links of some nodes, or restores them.
    pub(crate) fn outage(&mut self, nodes: &[usize], cut: bool) -> Result<(), Error> {
        for index in nodes {
            self.members[*index].tell(&Order::Outage { cut })?;
        }
        Ok(())
    }

    /// Stores a backlog at a node.
    pub(crate) fn fill(&mut self, node: usize, elements: u64) -> Result<(), Error> {
        self.members[node].tell(&Order::Fill { elements })?;
        let filled = |answer| matches!(answer, Answer::Filled).then_some(());
        self.gather(FILLING, 1, filled).map(drop)
    }

    /// Lets a node catch up with the backlog of another.
    pub(crate) fn catch_up(&mut self, node: usize, from: usize) -> Result<(), Error> {
        self.members[node].tell(&Order::CatchUp { from })
    }

    /// Counts the elements that arrived and those that did not; then the processes end.
    pub(crate) fn count(mut self) -> Result<Counted, Error> {
        let progress = self.progress()?;
        let produced: Vec<u64> = progress.iter().map(|one| one.yielded).collect();
        let before = self.before.clone();
        self.tell(&Order::Count { before, produced })?;
        let counted = self.all(ANSWERING, |answer| match answer {
            Answer::Counted(counted) => Some(counted),
            _ => None,
        })?;
        let mut all = Counted::default();
        for one in counted {
            all.received += one.received;
            all.lost += one.lost;
            all.doubled += one.doubled;
            all.reordered += one.reordered;
        }
        Ok(all)
    }

    fn tell(&mut self, order: &Order) -> Result<(), Error> {
        self.members
            .iter_mut()
            .try_for_each(|member| member.tell(order))
    }

    /// An answer of each, in their order.
    fn all<T>(
        &mut self,
        within: Duration,
        wanted: impl Fn(Answer) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        self.gather(within, self.members.len(), wanted)
    }

    fn gather<T>(
        &mut self,
        within: Duration,
        count: usize,
        wanted: impl Fn(Answer) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let deadline = Instant::now() + within;
        let mut answers = Vec::new();
        while answers.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((index, Answer::Failed(what))) => {
                    return Err(Error::Failed(format!("node {index}: {what}")));
                }
                Ok((index, answer)) => {
                    let what = format!("node {index} sends an unexpected answer: {answer:.80?}");
                    let answer = wanted(answer).ok_or(Error::Failed(what))?;
                    answers.push((index, answer));
                }
                Err(_) => {
                    let silent = count - answers.len();
                    let what = format!("{silent} of {count} processes do not answer");
                    return Err(Error::Failed(what));
                }
            }
        }
        answers.sort_by_key(|(index, _)| *index);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

impl Member {
    fn start(role: &Role, answers: Sender<(usize, Answer)>) -> Result<Self, Error> {
        let index = role.index;
        let failed = || Error::io(format!("starting node {index}"));
        std::fs::create_dir_all(&role.folder).map_err(failed())?;
        let words = role.folder.join("errors.txt");
        let errors = std::fs::File::create(&words).map_err(failed())?;
        let mut child = own_process("member")?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(failed())?;
        let orders = child.stdin.take();
        let output = child.stdout.take();
        let mut member = Self { child, orders };
        let line = serde_json::to_string(role).map_err(Error::failed("writing a role"))?;
        member.line(line)?;
        if let Some(output) = output {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let answer = serde_json::from_str(&line)
                        .unwrap_or_else(|error| Answer::Failed(format!("{error}: {line}")));
                    let last = matches!(answer, Answer::Counted(_) | Answer::Failed(_));
                    if answers.send((index, answer)).is_err() || last {
                        return;
                    }
                }
                let words = std::fs::read_to_string(&words).unwrap_or_default();
                let words: Vec<_> = words.lines().rev().take(3).collect();
                let what = format!("it has ended with: {}", words.join(" | "));
                let _ = answers.send((index, Answer::Failed(what)));
            });
        }
        Ok(member)
    }

    fn tell(&mut self, order: &Order) -> Result<(), Error> {
        let line = serde_json::to_string(order).map_err(Error::failed("writing an order"))?;
        self.line(line)
    }

    fn line(&mut self, mut line: String) -> Result<(), Error> {
        line.push('\n');
        let Some(orders) = &mut self.orders else {
            return Ok(());
        };
        orders
            .write_all(line.as_bytes())
            .map_err(Error::io("sending an order to a process"))
    }
}
