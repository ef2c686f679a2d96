"""Windows of the node's ranks (lierne.Window), on ranks of this node."""
import copy
import unittest

import numpy as np

import lierne
from cases import on_node
from report import main


class Windows(unittest.TestCase):
    """Rounds in closed form, views of the others' memory, and what must be an error."""

    def test_all_gather_and_reduce_scatter(self):
        """out[r C + i] = 100 r + i + k, and sums n (d C + j + k) + 100 n (n - 1) / 2."""
        n, count = 4, 5

        def rank(context):
            window = lierne.Window(context, (n, count), "f64")
            self.assertEqual((window.size, window.place, window.ranks), (n, context.rank, (0, 1, 2, 3)))
            part = np.arange(n * count).reshape(n, count)
            for k in range(500):
                window.writable()[:] = 100 * context.rank + part + k
                window.notify()
                window.wait()
                everyone = [window.readable(r) for r in range(n)]
                for r in range(n):
                    np.testing.assert_array_equal(everyone[r], 100 * r + part + k)
                mine = sum(x[context.rank] for x in everyone)
                np.testing.assert_array_equal(mine, n * (part[context.rank] + k) + 50 * n * (n - 1))
            del everyone
            window.close()

        on_node(n, rank)

    def test_writing_to_others(self):
        def rank(context):
            with lierne.Window(context, 3, np.int32) as window:
                for k in range(50):
                    for place in range(3):
                        window.writable(place)[context.rank] = 10 * context.rank + place + k
                    window.notify()
                    window.wait()
                    expected = [10 * r + context.rank + k for r in range(3)]
                    self.assertEqual(window.readable(context.rank).tolist(), expected)

        on_node(3, rank)

    def test_wrong_calls(self):
        def rank(context):
            for shape, dtype, kind in ((0, "f32", ValueError), ((2, -1), "f32", ValueError), (3, "f33", TypeError)):
                self.assertRaises(kind, lierne.Window, context, shape, dtype)
            with self.assertRaisesRegex(lierne.errors.MismatchError, "bytes"):
                lierne.Window(context, 4 + context.rank, "f32")
            window = lierne.Window(context, 4, "f32")
            self.assertRaisesRegex(RuntimeError, "no buffer is readable", window.readable, 0)
            self.assertRaisesRegex(lierne.errors.InvalidError, "not notified", window.wait)
            self.assertRaises(IndexError, window.writable, 2)
            self.assertRaises(TypeError, copy.copy, window)
            window.notify()
            self.assertRaisesRegex(RuntimeError, "no buffer is writable", window.writable)
            self.assertRaisesRegex(lierne.errors.InvalidError, "not waited for", window.notify)
            window.wait()
            view = window.readable(0)
            with self.assertRaisesRegex(ValueError, "read-only"):
                view[0] = 1
            self.assertRaisesRegex(BufferError, "array uses", window.close)
            del view
            window.close()
            window.close()
            self.assertRaisesRegex(ValueError, "window", window.notify)
            lierne.Window(context, 4, "f32")  # goes with its context

        on_node(2, rank)
        with lierne.Context.sim(2) as world, self.assertRaisesRegex(lierne.errors.UnsupportedError, "share no"):
            world.run(lambda context: lierne.Window(context, 4, "f32"))
        with lierne.Context.self() as context, lierne.Window(context, (2, 2), "bf16") as window:
            window.notify()
            window.wait()
            self.assertEqual((window.readable(0).shape, repr(window)),
                             ((2, 2), "Window((2, 2), bf16, place 0 of 1)"))

    def test_a_rank_that_does_not_come(self):
        def rank(context):
            window = lierne.Window(context, 4, "f32")
            window.notify()
            window.wait()
            if context.rank == 1:
                context.abort("out of pencils")
            else:
                window.notify()
                with self.assertRaisesRegex(lierne.Error, "rank 1 gave up: .*out of pencils"):
                    window.wait()

        on_node(3, rank)


if __name__ == "__main__":
    main()
