//! Builders of operations, the reverse of the typed views in `args`.

use super::args::{
    AllocHint, ArgsWriter, Checksum, CopyFrom, Extent, PgList, WatchArgs, WriteSame, XattrArgs,
};
use super::{SubOp, code};
use nacre_buf::{BufList, Bytes};
use nacre_denc::Writer;
use nacre_types::{ObjectLocator, SnapId};

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("inputs are far below 4 GiB")
}

fn joined(parts: &[&[u8]]) -> BufList {
    parts.concat().into()
}

impl SubOp {
    /// An operation without arguments or input.
    #[must_use]
    pub fn new(code: u16) -> Self {
        Self { code, flags: 0, args: [0; super::ARGS_BYTES], indata: BufList::new() }
    }

    /// The same with these flags set too.
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    /// The same with this input.
    #[must_use]
    pub fn with_indata(mut self, indata: BufList) -> Self {
        self.indata = indata;
        self
    }

    fn with_args(mut self, args: ArgsWriter) -> Self {
        self.args = args.0;
        self
    }

    /// An operation on a byte range: `read`, `zero`, `truncate` and their kin; `write` with input.
    #[must_use]
    pub fn with_extent(code: u16, extent: Extent) -> Self {
        let args = ArgsWriter::default().long(0, extent.offset).long(8, extent.length);
        Self::new(code).with_args(args.long(16, extent.truncate_size).word(24, extent.truncate_seq))
    }

    /// `read` of `length` bytes from `offset`; 0 reads to the end.
    #[must_use]
    pub fn read(offset: u64, length: u64) -> Self {
        Self::with_extent(code::READ, Extent { offset, length, ..Extent::default() })
    }

    /// `write` of `data` at `offset`.
    #[must_use]
    pub fn write(offset: u64, data: BufList) -> Self {
        let extent = Extent { offset, length: data.len() as u64, ..Extent::default() };
        Self::with_extent(code::WRITE, extent).with_indata(data)
    }

    /// `writefull` of `data`.
    #[must_use]
    pub fn write_full(data: BufList) -> Self {
        let extent = Extent { length: data.len() as u64, ..Extent::default() };
        Self::with_extent(code::WRITEFULL, extent).with_indata(data)
    }

    /// `append` of `data`.
    #[must_use]
    pub fn append(data: BufList) -> Self {
        let extent = Extent { length: data.len() as u64, ..Extent::default() };
        Self::with_extent(code::APPEND, extent).with_indata(data)
    }

    /// An attribute operation with lengths, comparison and input in place.
    #[must_use]
    pub fn with_xattr(code: u16, name: &[u8], value: &[u8], compare_op: u8, compare_mode: u8) -> Self {
        let xattr = XattrArgs { name_len: length(name), value_len: length(value), compare_op, compare_mode };
        let args = ArgsWriter::default()
            .word(0, xattr.name_len)
            .word(4, xattr.value_len)
            .byte(8, xattr.compare_op)
            .byte(9, xattr.compare_mode);
        Self::new(code).with_args(args).with_indata(joined(&[name, value]))
    }

    /// `call` of a class method.
    ///
    /// # Panics
    /// When class or method have more than 255 bytes.
    #[must_use]
    pub fn call(class: &str, method: &str, input: &[u8]) -> Self {
        let short = |text: &str| u8::try_from(text.len()).expect("names of classes and methods are short");
        let args = ArgsWriter::default().byte(0, short(class)).byte(1, short(method)).word(3, length(input));
        let indata = joined(&[class.as_bytes(), method.as_bytes(), input]);
        Self::new(code::CALL).with_args(args).with_indata(indata)
    }

    /// A listing; the cursor is the input.
    #[must_use]
    pub fn with_pg_list(code: u16, page: PgList, cursor: Bytes) -> Self {
        let args = ArgsWriter::default().long(0, page.count).word(8, page.start_epoch);
        Self::new(code).with_args(args).with_indata(cursor.into())
    }

    /// `rollback` to `snap`.
    #[must_use]
    pub fn rollback(snap: SnapId) -> Self {
        Self::new(code::ROLLBACK).with_args(ArgsWriter::default().long(0, snap.0))
    }

    /// `watch`.
    #[must_use]
    pub fn with_watch(watch: WatchArgs) -> Self {
        let args = ArgsWriter::default().long(0, watch.cookie).long(8, watch.version).byte(16, watch.op);
        Self::new(code::WATCH).with_args(args.word(17, watch.generation).word(21, watch.timeout_s))
    }

    /// `notify`; timeout and payload are the input.
    #[must_use]
    pub fn with_notify(cookie: u64, indata: Bytes) -> Self {
        let args = ArgsWriter::default().long(0, cookie);
        Self::new(code::NOTIFY).with_args(args).with_indata(indata.into())
    }

    /// `assert-version`.
    #[must_use]
    pub fn with_assert_ver(version: u64) -> Self {
        Self::new(code::ASSERT_VER).with_args(ArgsWriter::default().long(8, version))
    }

    /// `copy-from` of the head of the object `name`, which must have this user version; 0 for any.
    #[must_use]
    pub fn copy_of(name: &str, locator: &ObjectLocator, source_version: u64) -> Self {
        let mut w = Writer::new();
        w.str(name);
        w.put(locator);
        let copy = CopyFrom { source_snap: SnapId::HEAD, source_version, ..CopyFrom::default() };
        Self::with_copy_from(code::COPY_FROM, copy, w.finish())
    }

    /// `copy-from` or `copy-from2`; the source's name and locator are the input.
    #[must_use]
    pub fn with_copy_from(code: u16, copy: CopyFrom, indata: Bytes) -> Self {
        let args = ArgsWriter::default()
            .long(0, copy.source_snap.0)
            .long(8, copy.source_version)
            .byte(16, copy.flags)
            .word(17, copy.source_fadvise);
        Self::new(code).with_args(args).with_indata(indata.into())
    }

    /// `set-alloc-hint`.
    #[must_use]
    pub fn with_alloc_hint(hint: AllocHint) -> Self {
        let args = ArgsWriter::default().long(0, hint.expected_object_size);
        let args = args.long(8, hint.expected_write_size).word(16, hint.flags);
        Self::new(code::SETALLOCHINT).with_args(args)
    }

    /// `writesame`; the pattern is the input.
    #[must_use]
    pub fn with_writesame(offset: u64, length: u64, pattern: Bytes) -> Self {
        let same = WriteSame { offset, length, data_length: pattern.len() as u64 };
        let args = ArgsWriter::default().long(0, same.offset).long(8, same.length).long(16, same.data_length);
        Self::new(code::WRITESAME).with_args(args).with_indata(pattern.into())
    }

    /// `checksum`; the initial value is the input.
    #[must_use]
    pub fn with_checksum(checksum: Checksum, initial: Bytes) -> Self {
        let args = ArgsWriter::default().long(0, checksum.offset).long(8, checksum.length);
        let args = args.word(16, checksum.chunk_size).byte(20, checksum.kind);
        Self::new(code::CHECKSUM).with_args(args).with_indata(initial.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{copy_from_flag, watch_op};
    use super::*;

    #[test]
    fn what_is_built_reads_back() {
        let extent = Extent { offset: 1, length: 2, truncate_size: 3, truncate_seq: 4 };
        assert_eq!(SubOp::with_extent(code::ZERO, extent).extent(), extent);
        let page = PgList { count: 5, start_epoch: 6 };
        assert_eq!(SubOp::with_pg_list(code::PGNLS, page, Bytes::new()).pg_list(), page);
        assert_eq!(SubOp::rollback(SnapId(7)).snap(), SnapId(7));
        let watch = WatchArgs { cookie: 8, version: 9, op: watch_op::WATCH, generation: 10, timeout_s: 11 };
        assert_eq!(SubOp::with_watch(watch).watch(), watch);
        assert_eq!(SubOp::with_notify(12, Bytes::new()).notify_cookie(), 12);
        assert_eq!(SubOp::with_assert_ver(13).assert_ver(), 13);
        let flags = copy_from_flag::TRUNCATE_SEQ;
        let copy = CopyFrom { source_snap: SnapId(14), source_version: 15, flags, source_fadvise: 16 };
        assert_eq!(SubOp::with_copy_from(code::COPY_FROM2, copy, Bytes::new()).copy_from(), copy);
        let hint = AllocHint { expected_object_size: 17, expected_write_size: 18, flags: 19 };
        assert_eq!(SubOp::with_alloc_hint(hint).alloc_hint(), hint);
        let same = SubOp::with_writesame(20, 21, Bytes::from_static(b"ab")).writesame();
        assert_eq!(same, WriteSame { offset: 20, length: 21, data_length: 2 });
        let sum = Checksum { offset: 22, length: 23, chunk_size: 24, kind: 2 };
        assert_eq!(SubOp::with_checksum(sum, Bytes::new()).checksum(), sum);
    }

    #[test]
    fn input_is_cut_where_the_arguments_say() {
        let set = SubOp::with_xattr(code::SETXATTR, b"name", b"value", 0, 0);
        let (name, value) = set.xattr_parts().expect("both are there");
        assert_eq!((&name[..], &value[..]), (&b"name"[..], &b"value"[..]));
        let call = SubOp::call("rbd", "get_size", b"in").class_call().expect("all are there");
        assert_eq!((call.class, call.method, &call.input[..]), ("rbd".into(), "get_size".into(), &b"in"[..]));
        let short = SubOp { indata: BufList::new(), ..set };
        assert!(short.xattr_parts().is_err());
    }
}
