#!/usr/bin/python3
"""Records chunks.txt: checksums of the chunks that the plugins of a real Ceph make, by ceph-erasure-code-tool (Debian's ceph-osd), which
cuts and encodes as its OSDs do (ECUtil::encode). Recorded with 16.2.15. Usage: record.py > chunks.txt"""
import os, subprocess, tempfile

JERASURE, GOOD = 'plugin=jerasure,technique=reed_sol_van', 'plugin=jerasure,technique=cauchy_good'
ISA, CAUCHY = 'plugin=isa,technique=reed_sol_van', 'plugin=isa,technique=cauchy'
SHAPES = [(2, 1), (2, 2), (3, 2), (4, 2), (8, 3), (8, 4), (10, 4), (16, 3), (20, 2), (32, 3)]
CASES = [(p, k, m, 4096) for p in (JERASURE, ISA, CAUCHY) for k, m in SHAPES]
CASES += [(f'{GOOD},packetsize={packet}', k, m, 32 * packet) for packet in (8, 128, 2048) for k, m in SHAPES]
CASES += [(JERASURE, 4, 2, 16384), (ISA, 21, 4, 4096), (CAUCHY, 5, 6, 8192), (f'{GOOD},packetsize=128', 5, 6, 8192)]


def crc32c(data, table=[]):
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xffffffff
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc  # as Ceph has it: not inverted at the end


for profile, k, m, unit in CASES:
    length = 2 * k * unit + unit // 2 + 17
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, 'object')
        with open(name, 'wb') as file:
            file.write(bytes((at * 7 + at // 251 + at // 65521) % 251 for at in range(length)))
        wanted = ','.join(str(shard) for shard in range(k + m))
        profile = f'{profile},k={k},m={m}'
        subprocess.run(['ceph-erasure-code-tool', 'encode', profile, str(unit), wanted, name], check=True)
        sums = [crc32c(open(f'{name}.{shard}', 'rb').read()) for shard in range(k + m)]
    print(profile.replace(',', ' '), unit, length, ' '.join(f'{crc:08x}' for crc in sums), flush=True)
