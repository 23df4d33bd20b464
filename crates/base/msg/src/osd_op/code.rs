//! Operation codes. Ceph `CEPH_OSD_OP_*`, `src/include/rados.h` at v16.2.15.

/// Bit of operations that read.
pub const MODE_READ: u16 = 0x1000;
/// Bit of operations that write.
pub const MODE_WRITE: u16 = 0x2000;
/// Bits that say what an operation works on, under [`TYPE_MASK`].
pub const TYPE_MASK: u16 = 0x0f00;
/// Operations on a PG rather than an object, under [`TYPE_MASK`].
pub const TYPE_PG: u16 = 0x0500;

macro_rules! codes {
    ($($name:ident $value:literal $text:literal;)*) => {
        $(#[doc = concat!("`", $text, "`")] pub const $name: u16 = $value;)*

        /// The name that Ceph's logs and tools use, or `???`.
        #[must_use]
        pub const fn name(code: u16) -> &'static str {
            match code { $($name => $text,)* _ => "???" }
        }

        /// Every code that has a name.
        pub const ALL: &[u16] = &[$($name),*];
    };
}

codes! {
    READ 0x1201 "read";
    STAT 0x1202 "stat";
    MAPEXT 0x1203 "mapext";
    SPARSE_READ 0x1205 "sparse-read";
    NOTIFY 0x1206 "notify";
    NOTIFY_ACK 0x1207 "notify-ack";
    ASSERT_VER 0x1208 "assert-version";
    LIST_WATCHERS 0x1209 "list-watchers";
    LIST_SNAPS 0x120a "list-snaps";
    SYNC_READ 0x120b "sync_read";
    TMAPGET 0x120c "tmapget";
    OMAPGETKEYS 0x1211 "omap-get-keys";
    OMAPGETVALS 0x1212 "omap-get-vals";
    OMAPGETHEADER 0x1213 "omap-get-header";
    OMAPGETVALSBYKEYS 0x1214 "omap-get-vals-by-keys";
    OMAP_CMP 0x1219 "omap-cmp";
    ISDIRTY 0x121d "isdirty";
    COPY_GET 0x121e "copy-get";
    CHECKSUM 0x121f "checksum";
    CMPEXT 0x1220 "cmpext";
    WRITE 0x2201 "write";
    WRITEFULL 0x2202 "writefull";
    TRUNCATE 0x2203 "truncate";
    ZERO 0x2204 "zero";
    DELETE 0x2205 "delete";
    APPEND 0x2206 "append";
    TRIMTRUNC 0x2209 "trimtrunc";
    TMAPPUT 0x220b "tmapput";
    CREATE 0x220d "create";
    ROLLBACK 0x220e "rollback";
    WATCH 0x220f "watch";
    OMAPSETVALS 0x2215 "omap-set-vals";
    OMAPSETHEADER 0x2216 "omap-set-header";
    OMAPCLEAR 0x2217 "omap-clear";
    OMAPRMKEYS 0x2218 "omap-rm-keys";
    COPY_FROM 0x221a "copy-from";
    UNDIRTY 0x221c "undirty";
    SETALLOCHINT 0x2223 "set-alloc-hint";
    WRITESAME 0x2226 "writesame";
    OMAPRMKEYRANGE 0x222c "omap-rm-key-range";
    COPY_FROM2 0x222d "copy-from2";
    TMAPUP 0x320a "tmapup";
    TMAP2OMAP 0x3222 "tmap2omap";
    CALL 0x1401 "call";
    GETXATTR 0x1301 "getxattr";
    GETXATTRS 0x1302 "getxattrs";
    CMPXATTR 0x1303 "cmpxattr";
    SETXATTR 0x2301 "setxattr";
    SETXATTRS 0x2302 "setxattrs";
    RESETXATTRS 0x2303 "resetxattrs";
    RMXATTR 0x2304 "rmxattr";
    PGLS 0x1501 "pgls";
    PGLS_FILTER 0x1502 "pgls-filter";
    PG_HITSET_LS 0x1503 "pg-hitset-ls";
    PG_HITSET_GET 0x1504 "pg-hitset-get";
    PGNLS 0x1505 "pgnls";
    PGNLS_FILTER 0x1506 "pgnls-filter";
    SCRUBLS 0x1507 "scrubls";
}

/// True when the code carries the read bit. `call` does too; its class method decides what it really is.
#[must_use]
pub const fn is_read(code: u16) -> bool {
    code & MODE_READ != 0
}

/// True when the code carries the write bit.
#[must_use]
pub const fn is_write(code: u16) -> bool {
    code & MODE_WRITE != 0
}

/// True for operations on a whole PG (listings).
#[must_use]
pub const fn is_pg(code: u16) -> bool {
    code & TYPE_MASK == TYPE_PG
}
