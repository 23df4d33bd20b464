//! [`Spec`]: what a side of a comparison is, as it is written on the command line.

use crate::load::PGS_MAX;
use crate::shape::Shape;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Copies of a pool that anybody compares.
const COPIES_MAX: u8 = 10;
/// Chunks of data, and of parity, likewise.
const CHUNKS_MAX: u8 = 16;

/// Where a side comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    /// A cluster of our own: the binary, and options of `nacre up`.
    Nacre { binary: PathBuf, options: Vec<String>, setup: Setup },
    /// One that runs.
    Cluster(Running),
    /// The cluster and the load of the other side, with these options of its OSDs while this side is measured.
    Same(OsdOptions),
}

/// Options of OSDs, and their values.
pub(crate) type OsdOptions = Vec<(String, String)>;

/// What is apart from the other side in the load on one side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    /// PGs of the pool; `None` for those of `--pgs`.
    pub(crate) pgs: Option<u32>,
    /// Of all its cells.
    pub(crate) shape: Shape,
    /// How the pool keeps its objects; `None` for as many copies as the cluster makes by itself.
    pub(crate) kept: Option<Kept>,
    /// How connections of the OSDs and of the load's client are protected; `None` for the default.
    pub(crate) messenger: Option<Messenger>,
    /// In the cluster's configuration.
    pub(crate) config: OsdOptions,
}

/// How a pool keeps its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// So many copies.
    Copies(u8),
    /// So many chunks of data, and of parity.
    Coded(u8, u8),
}

/// What frames between peers have (`ms_cluster_mode`, `ms_service_mode`, `ms_client_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Messenger {
    /// Checksums, which show what the network has damaged.
    Crc,
    /// Encryption, with what proves that nobody changed them.
    Secure,
}

impl Messenger {
    /// The value of the options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc => "crc",
            Self::Secure => "secure",
        }
    }
}

impl Setup {
    /// Takes in `pgs=1024`, `copies=2`, `ec=2+1`, `messenger=secure`, `images=16`, `objects=1000`, `connections=200`,
    /// `osd_NAME=VALUE` or `nacre_NAME=VALUE`.
    fn add(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            _ if is_of_osds(name) => self.config.push((name.to_owned(), value.to_owned())),
            "pgs" => {
                let pgs = value.parse().ok().filter(|pgs| (1..=PGS_MAX).contains(pgs));
                self.pgs = Some(pgs.with_context(|| format!("pgs are from 1 to {PGS_MAX}"))?);
            }
            "copies" | "ec" => {
                let kept = if name == "ec" { parse_code(value) } else { parse_copies(value) };
                if self.kept.replace(kept?).is_some() {
                    bail!("copies and ec are said once, and only one of them");
                }
            }
            "messenger" => {
                let known = [Messenger::Crc, Messenger::Secure].into_iter().find(|mode| mode.name() == value);
                self.messenger = Some(known.context("a messenger is crc or secure")?);
            }
            _ => self.shape.add(name, value).context(
                "a side's own are pgs, copies, ec, messenger, images, objects, connections and options of OSDs (osd_..., nacre_...)",
            )?,
        }
        Ok(())
    }
}

/// Whether it is an option of OSDs, Ceph's or ours.
fn is_of_osds(name: &str) -> bool {
    name.starts_with("osd_") || name.starts_with("nacre_")
}

fn parse_copies(text: &str) -> Result<Kept> {
    let copies = text.parse().ok().filter(|copies| (2..=COPIES_MAX).contains(copies));
    Ok(Kept::Copies(copies.with_context(|| format!("copies are from 2 to {COPIES_MAX}"))?))
}

fn parse_code(text: &str) -> Result<Kept> {
    let chunks = text.split_once('+').and_then(|(k, m)| Some((k.parse().ok()?, m.parse().ok()?)));
    let chunks = chunks.filter(|(k, m)| (2..=CHUNKS_MAX).contains(k) && (1..=CHUNKS_MAX).contains(m));
    let (k, m) = chunks.with_context(|| {
        format!("a code is K+M as in ec=4+2: 2 to {CHUNKS_MAX} chunks of data, 1 to {CHUNKS_MAX} of parity")
    })?;
    Ok(Kept::Coded(k, m))
}

/// How to reach a cluster that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) conf: PathBuf,
    pub(crate) keyring: PathBuf,
    /// Name without `client.`.
    pub(crate) user: String,
    /// A pool that is there; `None` for one of our own, removed in the end.
    pub(crate) pool: Option<String>,
    /// Processes of the OSDs; empty: by their pid files in `run` beside the configuration.
    pub(crate) pids: Vec<u32>,
}

impl Spec {
    /// `nacre:BINARY[,WORD=VALUE..][,OPTION..]`, `cluster:CONF:KEYRING[:PID,PID..]` or `same:NAME=VALUE[,..]`; `None` when it
    /// begins with none of these words.
    ///
    /// # Errors
    /// When it does and the rest is not well-formed.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>> {
        if let Some(rest) = text.strip_prefix("nacre:") {
            let mut words = rest.split(',');
            let binary = words.next().filter(|binary| !binary.is_empty());
            let binary = binary.context("nacre: wants a binary, as in nacre:target/release/nacre")?;
            return Self::nacre(Path::new(binary), words).map(Some);
        }
        if let Some(rest) = text.strip_prefix("same:") {
            let options = rest.split(',').map(|word| {
                let option = word.split_once('=').filter(|(name, _)| is_of_osds(name));
                let (name, value) = option
                    .with_context(|| format!("'{word}': wanted is osd_NAME=VALUE or nacre_NAME=VALUE"))?;
                Ok((name.to_owned(), value.to_owned()))
            });
            return Ok(Some(Self::Same(options.collect::<Result<_>>()?)));
        }
        let Some(rest) = text.strip_prefix("cluster:") else { return Ok(None) };
        let parts: Vec<&str> = rest.split(':').collect();
        let (conf, keyring, pids) = match parts.as_slice() {
            [conf, keyring] => (conf, keyring, ""),
            [conf, keyring, pids] => (conf, keyring, *pids),
            _ => bail!("'{text}': wanted is cluster:CONF:KEYRING[:PID,PID..]"),
        };
        let pids = pids.split(',').filter(|pid| !pid.is_empty());
        let pids = pids.map(|pid| pid.parse().with_context(|| format!("'{pid}' is no process")));
        Ok(Some(Self::Cluster(Running {
            conf: conf.into(),
            keyring: keyring.into(),
            user: "admin".to_owned(),
            pool: None,
            pids: pids.collect::<Result<_>>()?,
        })))
    }

    /// A cluster of `binary`, with the words that stand behind it in `nacre:BINARY,WORD,..`.
    ///
    /// # Errors
    /// When one of them is not well-formed.
    pub(crate) fn nacre<'a>(binary: &Path, words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let (mut options, mut setup) = (Vec::new(), Setup::default());
        for word in words {
            match word.split_once('=').filter(|_| !word.starts_with('-')) {
                Some((name, value)) => setup.add(name, value).with_context(|| format!("'{word}'"))?,
                None => options.push(word.to_owned()),
            }
        }
        Ok(Self::Nacre { binary: binary.to_owned(), options, setup })
    }

    /// Of all its cells.
    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Nacre { setup, .. } => setup.shape,
            Self::Cluster(_) | Self::Same(_) => Shape::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read() {
        let parse = |text: &str| Spec::parse(text);
        let spec = parse("nacre:a/nacre,--osds,1").expect("well-formed");
        let options = vec!["--osds".to_owned(), "1".to_owned()];
        let setup = Setup::default();
        assert_eq!(spec, Some(Spec::Nacre { binary: "a/nacre".into(), options, setup }));
        let spec = parse("nacre:b,pgs=1024,--osds=1,images=16,--shards,1").expect("well-formed");
        let Some(Spec::Nacre { options, setup, .. }) = spec else { panic!("one of ours") };
        assert_eq!(options, ["--osds=1", "--shards", "1"]);
        assert_eq!((setup.pgs, setup.shape.suffixes().as_str()), (Some(1024), "-images16"));
        let Ok(Some(Spec::Cluster(running))) = parse("cluster:c:k:1,22") else { panic!("well-formed") };
        assert_eq!((running.conf.as_path(), running.pids.as_slice()), (Path::new("c"), &[1, 22][..]));
        assert_eq!(parse("results.jsonl").expect("a file"), None);
        let spec = parse("nacre:b,osd_enable_op_tracker=false,pgs=8").expect("well-formed");
        let Some(Spec::Nacre { setup, .. }) = spec else { panic!("one of ours") };
        assert_eq!(setup.config, [("osd_enable_op_tracker".to_owned(), "false".to_owned())]);
        let spec = parse("nacre:b,ec=4+2,messenger=secure").expect("well-formed");
        let Some(Spec::Nacre { setup: coded, .. }) = spec else { panic!("one of ours") };
        assert_eq!((coded.kept, coded.messenger), (Some(Kept::Coded(4, 2)), Some(Messenger::Secure)));
        assert!(parse("same:nacre_bill=false").is_ok());
        let spec = parse("same:osd_enable_op_tracker=false").expect("well-formed");
        assert_eq!(spec, Some(Spec::Same(setup.config)));
        for wrong in [
            "nacre:b,copies=1",
            "nacre:b,copies=2,ec=2+1",
            "nacre:b,ec=2",
            "nacre:b,ec=1+1",
            "nacre:b,messenger=plain",
            "same:",
            "same:pgs=8",
            "same:osd_max_backfills",
            "nacre:",
            "nacre:b,pgs=0",
            "nacre:b,pg=1",
            "nacre:b,images=x",
            "cluster:c",
            "cluster:c:k:x",
            "cluster:c:k:1:2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
