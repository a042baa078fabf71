//! The metrics of this process, under the names that dashboards know: on Linux from `/proc`, elsewhere none.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// Reads the figures each time they are asked for.
#[derive(Debug)]
pub(super) struct Process;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    cpu_seconds: f64,
    start_seconds: f64,
    resident_bytes: i64,
    virtual_bytes: i64,
    open_fds: i64,
    max_fds: i64,
    threads: i64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(figures) = figures() else { return Ok(()) };
        let cpu = ConstCounter::new(figures.cpu_seconds);
        let help = "CPU time of the process, in seconds";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        let start = ConstGauge::new(figures.start_seconds);
        let help = "When the process started, in seconds since 1970";
        start.encode(encoder.encode_descriptor("process_start_time_seconds", help, None, start.metric_type())?)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory of the process that is in RAM", figures.resident_bytes),
            ("process_virtual_memory_bytes", "Memory that the process has mapped", figures.virtual_bytes),
            ("process_open_fds", "Open files and connections of the process", figures.open_fds),
            ("process_max_fds", "Files and connections that it may have open", figures.max_fds),
            ("process_threads", "Threads of the process", figures.threads),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn figures() -> Option<Figures> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let of_system = std::fs::read_to_string("/proc/stat").ok()?;
    let booted = of_system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
    // One of them is the folder that is being read.
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (ticks, page) = (rustix::param::clock_ticks_per_second() as f64, number(rustix::param::page_size() as u64));
    let read = Figures {
        open_fds: number(open as u64),
        max_fds: most.map_or(i64::MAX, number),
        ..parse(&stat, booted, ticks, page)?
    };
    Some(read)
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
fn figures() -> Option<Figures> {
    None
}

/// Reads a line of `/proc/PID/stat` (proc(5)); its numbers come after the last parenthesis, which may be part of the name.
#[cfg(any(target_os = "linux", test))]
fn parse(stat: &str, booted: f64, ticks: f64, page: i64) -> Option<Figures> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The third field of the line is the first of these.
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    Some(Figures {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
        start_seconds: booted + field(22)? as f64 / ticks,
        resident_bytes: field(24)?.saturating_mul(page),
        virtual_bytes: field(23)?,
        open_fds: 0,
        max_fds: 0,
        threads: field(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_anything_in_it() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 9 0 500 8192 3 99 1 2";
        let read = parse(stat, 1_000.0, 100.0, 4_096).unwrap();
        let figures = Figures {
            cpu_seconds: 2.0,
            start_seconds: 1_005.0,
            resident_bytes: 12_288,
            virtual_bytes: 8_192,
            open_fds: 0,
            max_fds: 0,
            threads: 9,
        };
        assert_eq!(read, figures);
        assert_eq!(parse("7 (cut off", 0.0, 100.0, 1), None);
        assert_eq!(parse("7 (short) S 1 2", 0.0, 100.0, 1), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_is_counted() {
        let before = figures().unwrap();
        let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let now = figures().unwrap();
        // Tests that run beside this one open and close some too.
        assert!(now.open_fds >= before.open_fds + 50 && now.open_fds <= now.max_fds, "{before:?} {now:?}");
        assert!(now.resident_bytes > 1 << 20 && now.virtual_bytes >= now.resident_bytes, "{now:?}");
        assert_eq!(now.start_seconds, before.start_seconds);
        drop(files);
    }
}
