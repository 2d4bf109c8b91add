"""Fractional pooling sequences written from their description: Philox4x32-10 in plain Python integers."""

import math

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def block(counter, key):
    """Four 32-bit words from a 128-bit counter and a 64-bit key: ten rounds of Philox4x32."""
    c = [(counter >> 32 * i) & MASK32 for i in range(4)]
    k = [key & MASK32, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK32, (a >> 32) ^ c[3] ^ k[1], a & MASK32]
        k = [(k[0] + 0x9E3779B9) & MASK32, (k[1] + 0xBB67AE85) & MASK32]
    return c


class Words:
    """Reservations of random words; each starts on a fresh block."""

    def __init__(self, seed, seed2):
        self.key, self.counter = seed & MASK64, (seed2 & MASK64) << 64

    def reserve(self, count):
        blocks = -(-count // 4)
        words = [w for i in range(blocks) for w in block(self.counter + i, self.key)]
        self.counter += blocks
        return words[:count]


def shuffled(n, out, words):
    k = n // out
    sizes = [k + 1] * (n % out) + [k] * (out - n % out)
    draws = words.reserve(out)
    for i in range(out - 1):
        j = i + draws[i] % (out - i)
        sizes[i], sizes[j] = sizes[j], sizes[i]
    edges = [0]
    for size in sizes:
        edges.append(edges[-1] + size)
    return edges


def pseudo_random(n, out, words):
    k, alpha = n // out, n / out
    u_max = min((k + 2) / alpha - 1, (n + 1 - k) / alpha - (out - 1))
    x0, x1 = words.reserve(2)
    u = (((x0 & 0xFFFFF) << 32 | x1) / (1 << 52)) * u_max
    return [0] + [math.ceil(alpha * (i + u)) - 1 for i in range(1, out)] + [n]


def sequences(lengths, outs, seed, seed2, pseudo):
    """The row and the column sequence of one call: rows are drawn first."""
    words = Words(seed, seed2)
    return [(pseudo_random if pseudo else shuffled)(n, out, words) for n, out in zip(lengths, outs)]
