//! What a simulated device is like, and what it has done.

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Size of the device; only blocks written take memory.
    pub size_bytes: u64,
    /// Where all randomness comes from.
    pub seed: u64,
    /// What goes wrong by itself.
    pub faults: Faults,
}

impl SimConfig {
    /// A device of `size_bytes` on which nothing goes wrong by itself.
    #[must_use]
    pub fn new(size_bytes: u64, seed: u64) -> Self {
        Self { size_bytes, seed, faults: Faults::default() }
    }
}

/// What goes wrong by itself, each in parts per million of the requests concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail once.
    pub read_errors_ppm: u32,
    /// Writes that fail, with any of their sectors written.
    pub write_errors_ppm: u32,
    /// Flushes that fail; each write they should have kept may then be lost for good.
    pub flush_errors_ppm: u32,
    /// Writes after which one of their blocks cannot be read until it is written again.
    pub latent_ppm: u32,
    /// Writes that are said to be done and are not.
    pub lost_ppm: u32,
    /// Writes that land elsewhere.
    pub misdirected_ppm: u32,
}

/// How long a device that was told to fail does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// One request fails, and the next does not.
    Once,
    /// That one and all after it, until [`crate::SimDevice::heal`].
    FromThenOn,
}

/// Requests that took effect, counted since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests that were done.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Writes that need not be durable.
    pub cached_writes: u64,
    /// Writes that are durable.
    pub durable_writes: u64,
    /// Bytes written by both.
    pub written_bytes: u64,
    /// Flushes that were done.
    pub flushes: u64,
    /// Discards that were done.
    pub discards: u64,
    /// Bytes that they were of.
    pub discarded_bytes: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Writes lost or misdirected.
    pub betrayals: u64,
    /// Losses of power.
    pub crashes: u64,
}

impl Counters {
    /// Number of requests of all kinds.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads + self.cached_writes + self.durable_writes + self.flushes + self.discards
    }
}
