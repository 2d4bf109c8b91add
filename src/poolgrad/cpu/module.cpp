// The compiled module: a Plan per pooling problem, memory for results, threads. Arrays are NumPy's or have the buffer protocol.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cxxabi.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "arrays.hpp"
#include "calls.hpp"
#include "memory.hpp"
#include "plan.hpp"
#include "threads.hpp"

namespace poolgrad {
namespace {

// Lets other Python threads run, unless the work is so brief that it is done before they would. A thread that comes back while the
// interpreter is shutting down is ended by it with a forced unwinding, which must not pass through C++ code that other people wrote:
// such a thread is put to sleep for good instead.
class OthersMayRun {
public:
    explicit OthersMayRun(bool brief) : state_(brief ? nullptr : PyEval_SaveThread()) {}
    ~OthersMayRun() {
        if (!state_) return;
        try {
            PyEval_RestoreThread(state_);
        }
#if defined(__GLIBCXX__)
        catch (abi::__forced_unwind&) {
            for (;;) pause();
        }
#else
        catch (...) {
            throw;
        }
#endif
    }
    OthersMayRun(const OthersMayRun&) = delete;

private:
    PyThreadState* state_;
};

// ---- arrays ---------------------------------------------------------------------------------------------------------

class Array {
public:
    Array(nb::handle object, int flags) {
        const NumpyArray* const array = numpy.array(object.ptr());
        if (array && (!(flags & PyBUF_WRITABLE) || array->flags & Numpy::writeable)) {   // else the protocol says what is wrong
            buffer_ = {};
            buffer_.buf = array->data;
            buffer_.len = buffer_.itemsize = numpy.itemsize(array->dtype);
            buffer_.ndim = array->ndim;
            buffer_.shape = array->shape;
            buffer_.strides = array->strides;
            for (int i = 0; i < array->ndim; ++i) buffer_.len *= array->shape[i];
            return;
        }
        if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
        held_ = true;
    }
    ~Array() {
        if (held_) PyBuffer_Release(&buffer_);
    }
    Array(const Array&) = delete;
    const Py_buffer& operator*() const { return buffer_; }
    const Py_buffer* operator->() const { return &buffer_; }

private:
    Py_buffer buffer_;
    bool held_ = false;
};

class PyPlan {
public:
    PyPlan(std::vector<int64_t> shape, std::vector<int64_t> out_shape, int axis, int64_t batch, const nb::list& axes)
        : PyPlan(std::move(shape), std::move(out_shape), axis, batch, specs(axes)) {}

    // Every operation returns whether it ran: false means that an input's strides cannot be followed and a contiguous copy
    // is needed.
    bool maximum(int type, nb::handle x, nb::handle y, nb::handle code, bool ignore_nan) const {
        const Array in(x, PyBUF_STRIDES);
        const Result values(*this, y, true), codes(*this, code, true);
        const auto view = input(*in, type, false);
        if (!view) return false;
        const OthersMayRun release(brief());
        plan_.maximum(DType(type), *view, values.data(dtype_bytes(DType(type))), codes.data(), codes.width(), ignore_nan);
        return true;
    }
    bool take(int type, nb::handle v, nb::handle code, nb::handle y) const { return take_by(type, v, code, y, false); }
    bool put(int type, nb::handle g, nb::handle code, nb::handle gx, bool assign) const { return put_by(type, g, code, gx, assign, false); }
    // The same for arrays as anybody gives them: the result is new or `out`. Nothing if there is a fault: others say which.
    nb::object take_checked(const nb::dict& types, nb::handle v, nb::handle code, nb::handle code_dtype, nb::handle out) const {
        return checked(types, v, code, code_dtype, out, out_shape_, [&](int type, nb::handle y) { return take_by(type, v, code, y, true); });
    }
    nb::object put_checked(const nb::dict& types, nb::handle g, nb::handle code, nb::handle code_dtype, nb::handle out, bool assign) const {
        return checked(types, g, code, code_dtype, out, shape_, [&](int type, nb::handle gx) { return put_by(type, g, code, gx, assign, true); });
    }
    bool mean(int type, nb::handle x, nb::handle y) const {
        const Array in(x, PyBUF_STRIDES);
        const Result values(*this, y, true);
        const auto view = input(*in, type, false);
        if (!view) return false;
        const OthersMayRun release(brief());
        plan_.mean(DType(type), *view, values.data(dtype_bytes(DType(type))));
        return true;
    }
    bool spread(int type, nb::handle g, nb::handle gx) const {
        const Array in(g, PyBUF_STRIDES);
        const Result values(*this, gx, false);
        const auto view = input(*in, type, true);
        if (!view) return false;
        const OthersMayRun release(brief());
        plan_.spread(DType(type), *view, values.data(dtype_bytes(DType(type))));
        return true;
    }
    bool max_put(int type, nb::handle x, nb::handle g, nb::handle equal, nb::handle gx, bool ignore_nan) const {
        const Array in(x, PyBUF_STRIDES), grad(g, PyBUF_STRIDES);
        const Result wanted(*this, equal, true, false), values(*this, gx, false);
        const auto view = input(*in, type, false), grads = input(*grad, type, true);
        if (!view || !grads) return false;
        const OthersMayRun release(brief());
        const int64_t bytes = dtype_bytes(DType(type));
        plan_.max_put(DType(type), *view, *grads, wanted.data(bytes), values.data(bytes), ignore_nan);
        return true;
    }
    bool max_take(int type, nb::handle x, nb::handle v, nb::handle equal, nb::handle y, bool ignore_nan) const {
        const Array in(x, PyBUF_STRIDES), other(v, PyBUF_STRIDES);
        const Result wanted(*this, equal, true, false), values(*this, y, true);
        const auto view = input(*in, type, false), others = input(*other, type, false);
        if (!view || !others || !same_steps(*view, *others)) return false;   // one place, one bound for both
        const OthersMayRun release(brief());
        const int64_t bytes = dtype_bytes(DType(type));
        plan_.max_take(DType(type), *view, *others, wanted.data(bytes), values.data(bytes), ignore_nan);
        return true;
    }
    bool ties_put(int type, nb::handle x, nb::handle y, nb::handle g, nb::handle gx, bool split) const {
        const Array in(x, PyBUF_STRIDES), grad(g, PyBUF_STRIDES);
        const Result wanted(*this, y, true, false), values(*this, gx, false);
        const auto view = input(*in, type, false), grads = input(*grad, type, true);
        if (!view || !grads) return false;
        const OthersMayRun release(brief());
        const int64_t bytes = dtype_bytes(DType(type));
        plan_.ties_put(DType(type), *view, wanted.data(bytes), *grads, values.data(bytes), split);
        return true;
    }
    bool ties_take(int type, nb::handle x, nb::handle y, nb::handle v, nb::handle out, bool split) const {
        const Array in(x, PyBUF_STRIDES), other(v, PyBUF_STRIDES);
        const Result wanted(*this, y, true, false), values(*this, out, true);
        const auto view = input(*in, type, false), others = input(*other, type, false);
        if (!view || !others) return false;
        const OthersMayRun release(brief());
        const int64_t bytes = dtype_bytes(DType(type));
        plan_.ties_take(DType(type), *view, wanted.data(bytes), *others, values.data(bytes), split);
        return true;
    }
    bool code_to_index(nb::handle code, int scope, nb::handle index) const {
        const Result codes(*this, code, true, false), indices(*this, index, true);
        const OthersMayRun release(brief());
        plan_.code_to_index(codes.data(), codes.width(), scope, indices.data(), indices.width());
        return true;
    }
    int64_t find_bad_code(nb::handle code) const {
        const Result codes(*this, code, true, false);
        const OthersMayRun release(brief());
        return plan_.find_bad_code(codes.data(), codes.width());
    }
    int64_t find_bad_index(nb::handle index, int scope) const {
        const Result indices(*this, index, true, false);
        const OthersMayRun release(brief());
        return plan_.find_bad_index(indices.data(), indices.width(), scope);
    }
    bool index_put(int type, nb::handle g, nb::handle index, int scope, nb::handle gx) const {
        const Array grad(g, PyBUF_STRIDES);
        const Result indices(*this, index, true, false), values(*this, gx, false);
        const auto grads = input(*grad, type, true);
        if (!grads) return false;
        const OthersMayRun release(brief());
        plan_.index_put(DType(type), *grads, indices.data(), indices.width(), scope, values.data(dtype_bytes(DType(type))));
        return true;
    }
    bool index_take(int type, nb::handle v, nb::handle index, int scope, nb::handle y) const {
        const Result source(*this, v, false, false), indices(*this, index, true, false), values(*this, y, true);
        const OthersMayRun release(brief());
        const int64_t bytes = dtype_bytes(DType(type));
        plan_.index_take(DType(type), plan_.dense(source.data(bytes), false, bytes), indices.data(), indices.width(), scope, values.data(bytes));
        return true;
    }

private:
    std::vector<int64_t> shape_, out_shape_;
    int axis_;
    Plan plan_;

    // With `check`, these also decline if the result overlaps what they read, or a code names no element.
    bool take_by(int type, nb::handle v, nb::handle code, nb::handle y, bool check) const {
        const Array in(v, PyBUF_STRIDES);
        const Result codes(*this, code, true, false), values(*this, y, true);
        const auto view = input(*in, type, false);
        if (!view || (check && (values.overlaps(view->begin, view->end) || values.overlaps(codes)))) return false;
        const OthersMayRun release(brief());
        if (check && plan_.find_bad_code(codes.data(), codes.width()) >= 0) return false;
        plan_.take(DType(type), *view, codes.data(), codes.width(), values.data(dtype_bytes(DType(type))));
        return true;
    }
    bool put_by(int type, nb::handle g, nb::handle code, nb::handle gx, bool assign, bool check) const {
        const Array in(g, PyBUF_STRIDES);
        const Result codes(*this, code, true, false), values(*this, gx, false);
        const auto view = input(*in, type, true);
        if (!view || (check && (values.overlaps(view->begin, view->end) || values.overlaps(codes)))) return false;
        const OthersMayRun release(brief());
        if (check && plan_.find_bad_code(codes.data(), codes.width()) >= 0) return false;
        plan_.put(DType(type), *view, codes.data(), codes.width(), values.data(dtype_bytes(DType(type))), assign);
        return true;
    }
    template <class F>
    static nb::object checked(const nb::dict& types, nb::handle values, nb::handle code, nb::handle code_dtype, nb::handle out,
                              const std::vector<int64_t>& shape, F run) {
        const NumpyArray *const in = numpy.array(values.ptr()), *const codes = numpy.array(code.ptr()), *const given = numpy.array(out.ptr());
        if (!in || !codes || codes->dtype != code_dtype.ptr() || (!out.is_none() && (!given || given->dtype != in->dtype))) return nb::none();
        PyObject* const type = PyDict_GetItemWithError(types.ptr(), in->dtype);
        if (!type) PyErr_Clear();
        try {
            const nb::object result = !type || given ? nb::borrow(out) : new_array(shape, nb::borrow(in->dtype));
            return type && run(nb::cast<int>(nb::handle(type)), result) ? result : nb::none();
        } catch (const std::exception&) { return nb::none(); }
    }

    // Some ten microseconds at most: other threads wait longer for their turn anyway.
    bool brief() const {
        return static_cast<double>(plan_.inputs()) + static_cast<double>(plan_.outputs()) * static_cast<double>(plan_.geometry().elements) < 65536;
    }

    PyPlan(std::vector<int64_t> shape, std::vector<int64_t> out_shape, int axis, int64_t batch, const std::vector<AxisSpec>& axes)
        : shape_(std::move(shape)),
          out_shape_(std::move(out_shape)),
          axis_(axis),
          plan_(product(0, axis), product(axis + static_cast<int>(axes.size()), static_cast<int>(shape_.size())),
                batch > 0 ? product(0, axis) / batch : 1, checked(axes)) {}

    int64_t product(int from, int to) const {
        int64_t n = 1;
        for (int i = from; i < to; ++i) n *= shape_[static_cast<size_t>(i)];
        return n;
    }

    static std::vector<AxisSpec> specs(const nb::list& axes) {
        std::vector<AxisSpec> result;
        for (nb::handle item : axes) {
            const nb::tuple t = nb::cast<nb::tuple>(item);
            AxisSpec spec;
            int64_t* fields[] = {&spec.size, &spec.count, &spec.window, &spec.stride, &spec.before, &spec.dilation, &spec.extent};
            for (size_t i = 0; i < 7; ++i) *fields[i] = nb::cast<int64_t>(t[i]);
            spec.starts = nb::cast<std::vector<int64_t>>(t[7]);
            spec.stops = nb::cast<std::vector<int64_t>>(t[8]);
            spec.divisors = nb::cast<std::vector<int64_t>>(t[9]);
            result.push_back(std::move(spec));
        }
        return result;
    }

    // What the kernels rely on. The Python layer has said all this in friendlier words before.
    const std::vector<AxisSpec>& checked(const std::vector<AxisSpec>& axes) const {
        constexpr int64_t limit = int64_t{1} << 62;
        if (axes.empty() || axes.size() > max_axes || shape_.size() != out_shape_.size() || axis_ < 0 || axis_ + axes.size() > shape_.size())
            throw std::invalid_argument("axes do not fit the shape");
        for (size_t i = 0; i < axes.size(); ++i) {
            const AxisSpec& a = axes[i];
            const bool listed = !a.starts.empty();
            if (a.size != shape_[static_cast<size_t>(axis_) + i] || a.count != out_shape_[static_cast<size_t>(axis_) + i] || a.size < 0 ||
                a.count < 0)
                throw std::invalid_argument("windows do not fit the shape");
            if (a.dilation < 1 || a.dilation > limit || a.extent > limit || a.before < 0 || a.before > limit || a.window < 0 || a.window > limit)
                throw std::invalid_argument("windows are out of range");
            if (!a.divisors.empty() && static_cast<int64_t>(a.divisors.size()) != a.count) throw std::invalid_argument("divisors are incomplete");
            for (const int64_t divisor : a.divisors)
                if (divisor == 0) throw std::invalid_argument("a divisor is zero");
            if (listed) {
                if (static_cast<int64_t>(a.starts.size()) != a.count || a.stops.size() != a.starts.size() || a.dilation != 1)
                    throw std::invalid_argument("listed windows are incomplete");
                for (size_t o = 0; o < a.starts.size(); ++o)
                    if (a.starts[o] < (o ? a.starts[o - 1] : 0) || a.stops[o] < (o ? a.stops[o - 1] : 0) || a.stops[o] > a.size ||
                        a.starts[o] >= a.stops[o] || a.stops[o] - a.starts[o] > a.extent)
                        throw std::invalid_argument("listed windows are out of order or empty");
            } else if (a.count > 0) {
                if (a.window < 1 || a.stride < 1 || a.stride > limit) throw std::invalid_argument("window and stride must be positive");
                // Every window has a real element: the first reaches into the axis, the last begins inside, and no dilation steps over it.
                if (a.before > 0 && (a.window - 1) < (a.before + a.dilation - 1) / a.dilation)
                    throw std::invalid_argument("the first window lies in the padding");
                if (a.count > (a.size - 1 + a.before) / a.stride + 1) throw std::invalid_argument("the last window lies beyond the end");
                if (a.dilation > a.size)
                    for (int64_t o = 0; o < a.count && o * a.stride < a.before; ++o)
                        if ((a.dilation - (a.before - o * a.stride) % a.dilation) % a.dilation >= a.size)
                            throw std::invalid_argument("a window steps over the axis");
            }
        }
        return axes;
    }

    // An input array as the kernels see it, or nothing if its strides cannot be followed.
    std::optional<View> input(const Py_buffer& b, int type, bool outputs) const {
        const std::vector<int64_t>& shape = outputs ? out_shape_ : shape_;
        const Geometry& g = plan_.geometry();
        const int64_t bytes = dtype_bytes(DType(type));
        if (b.itemsize != bytes || b.ndim != static_cast<int>(shape.size())) throw std::invalid_argument("an array has the wrong dtype or rank");
        for (int i = 0; i < b.ndim; ++i)
            if (b.shape[i] != shape[static_cast<size_t>(i)]) throw std::invalid_argument("an array has the wrong shape");
        View v = plan_.dense(b.buf, outputs, bytes);
        if (PyBuffer_IsContiguous(&b, 'C'))
            return reinterpret_cast<uintptr_t>(b.buf) % static_cast<uintptr_t>(bytes) == 0 ? std::optional(v) : std::nullopt;
        const auto size = [&](int i) { return shape[static_cast<size_t>(i)]; };
        const auto step = [&](int i) { return size(i) <= 1 ? 0 : b.strides[i] / bytes; };
        for (int i = 0; i < b.ndim; ++i)   // the kernels' bounds rely on rows that follow each other upwards
            if (size(i) == 0 || step(i) < 0 || b.strides[i] % bytes != 0) return std::nullopt;
        if (reinterpret_cast<uintptr_t>(b.buf) % static_cast<uintptr_t>(bytes) != 0) return std::nullopt;
        int64_t expected = 1;   // rows are contiguous
        for (int i = b.ndim - 1; i >= axis_ + g.rank - 1; --i) {
            if (size(i) > 1 && step(i) != expected) return std::nullopt;
            expected *= size(i);
        }
        for (int a = 0; a < g.rank - 1; ++a) v.step[a] = step(axis_ + a);
        // Leading dimensions are one or two runs of equal steps.
        int runs = 0;
        int64_t run_size[2] = {1, 1}, run_step[2] = {0, 0};
        for (int i = axis_ - 1; i >= 0; --i) {
            if (size(i) == 1) continue;
            if (runs > 0 && step(i) == run_step[runs - 1] * run_size[runs - 1]) {
                run_size[runs - 1] *= size(i);
            } else if (runs == 2) {
                return std::nullopt;
            } else {
                run_size[runs] = size(i);
                run_step[runs++] = step(i);
            }
        }
        v.outer_split = runs == 2 ? run_size[0] : 1;
        v.outer_step[0] = runs == 2 ? run_step[1] : run_step[0];
        v.outer_step[1] = runs == 2 ? run_step[0] : 0;
        int64_t end = 1;
        for (int i = 0; i < b.ndim; ++i) end += step(i) * (size(i) - 1);
        v.end = static_cast<const char*>(b.buf) + end * bytes;
        return v;
    }

    static bool same_steps(const View& a, const View& b) {
        bool same = a.outer_split == b.outer_split && a.outer_step[0] == b.outer_step[0] && a.outer_step[1] == b.outer_step[1];
        for (int i = 0; i < max_axes; ++i) same = same && a.step[i] == b.step[i];
        return same;
    }

    // A contiguous array of the input or output shape; None gives null.
    class Result {
    public:
        Result(const PyPlan& plan, nb::handle object, bool outputs, bool writable = true) {
            if (object.is_none()) return;
            array_.emplace(object, PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0));
            const std::vector<int64_t>& shape = outputs ? plan.out_shape_ : plan.shape_;
            const Py_buffer& b = **array_;
            bool fits = b.ndim == static_cast<int>(shape.size()) && PyBuffer_IsContiguous(&b, 'C');
            for (int i = 0; fits && i < b.ndim; ++i) fits = b.shape[i] == shape[static_cast<size_t>(i)];
            if (!fits || reinterpret_cast<uintptr_t>(b.buf) % static_cast<uintptr_t>(b.itemsize) != 0)
                throw std::invalid_argument("an array has the wrong shape or is not contiguous");
        }
        void* data() const { return array_ ? (**array_).buf : nullptr; }
        void* data(int64_t bytes) const {
            if (array_ && (**array_).itemsize != bytes) throw std::invalid_argument("an array has the wrong dtype");
            return data();
        }
        bool overlaps(const void* begin, const void* end) const {
            const char* const mine = static_cast<const char*>(data());
            return mine < end && begin < mine + (**array_).len;
        }
        bool overlaps(const Result& other) const { return overlaps(other.data(), static_cast<const char*>(other.data()) + (**other.array_).len); }
        int width() const { return array_ ? static_cast<int>((**array_).itemsize) : 1; }

    private:
        std::optional<Array> array_;
    };
};

}  // namespace
}  // namespace poolgrad

NB_MODULE(_kernels, m) {
    using namespace poolgrad;
    nb::set_leak_warnings(false);   // threads that are put to sleep at exit keep what they hold
    m.doc() = "The CPU kernels of poolgrad. Use poolgrad's own functions; these trust their caller.";
    numpy.load();
    PyBlock::make_type();
    m.attr("Block") = nb::borrow(reinterpret_cast<PyObject*>(PyBlock::type));
    nb::class_<PyPlan>(m, "Plan")
        .def(nb::init<std::vector<int64_t>, std::vector<int64_t>, int, int64_t, const nb::list&>(), nb::arg("shape"), nb::arg("out_shape"),
             nb::arg("axis"), nb::arg("batch"), nb::arg("axes"))
        .def("maximum", &PyPlan::maximum, nb::arg("type"), nb::arg("x"), nb::arg("y").none(), nb::arg("code").none(), nb::arg("ignore_nan"))
        .def("take", &PyPlan::take, nb::arg("type"), nb::arg("v"), nb::arg("code"), nb::arg("y"))
        .def("put", &PyPlan::put, nb::arg("type"), nb::arg("g"), nb::arg("code"), nb::arg("gx"), nb::arg("assign"))
        .def("take_checked", &PyPlan::take_checked, nb::arg("types"), nb::arg("v").none(), nb::arg("code").none(), nb::arg("code_dtype"),
             nb::arg("out").none())
        .def("put_checked", &PyPlan::put_checked, nb::arg("types"), nb::arg("g").none(), nb::arg("code").none(), nb::arg("code_dtype"),
             nb::arg("out").none(), nb::arg("assign"))
        .def("mean", &PyPlan::mean, nb::arg("type"), nb::arg("x"), nb::arg("y"))
        .def("spread", &PyPlan::spread, nb::arg("type"), nb::arg("g"), nb::arg("gx"))
        .def("max_put", &PyPlan::max_put, nb::arg("type"), nb::arg("x"), nb::arg("g"), nb::arg("equal").none(), nb::arg("gx"), nb::arg("ignore_nan"))
        .def("max_take", &PyPlan::max_take, nb::arg("type"), nb::arg("x"), nb::arg("v"), nb::arg("equal").none(), nb::arg("y"), nb::arg("ignore_nan"))
        .def("ties_put", &PyPlan::ties_put, nb::arg("type"), nb::arg("x"), nb::arg("y"), nb::arg("g"), nb::arg("gx"), nb::arg("split"))
        .def("ties_take", &PyPlan::ties_take, nb::arg("type"), nb::arg("x"), nb::arg("y"), nb::arg("v"), nb::arg("out"), nb::arg("split"))
        .def("code_to_index", &PyPlan::code_to_index, nb::arg("code"), nb::arg("scope"), nb::arg("index"))
        .def("find_bad_code", &PyPlan::find_bad_code, nb::arg("code"))
        .def("find_bad_index", &PyPlan::find_bad_index, nb::arg("index"), nb::arg("scope"))
        .def("index_put", &PyPlan::index_put, nb::arg("type"), nb::arg("g"), nb::arg("index"), nb::arg("scope"), nb::arg("gx"))
        .def("index_take", &PyPlan::index_take, nb::arg("type"), nb::arg("v"), nb::arg("index"), nb::arg("scope"), nb::arg("y"));
    nb::class_<Program>(m, "Program")
        .def(nb::init<size_t, const nb::list&, const nb::list&, const nb::list&, nb::object>(), nb::arg("given"), nb::arg("results"),
             nb::arg("steps"), nb::arg("outputs"), nb::arg("outputs_type").none());
    nb::class_<Calls>(m, "Calls");
    m.def("remembering", &remembering, nb::arg("kinds"), nb::arg("through_python"), nb::arg("next_time"), nb::arg("codes"), nb::arg("most_kept"),
          nb::arg("longest_kept"));
    m.def(
        "new_array", [](nb::tuple shape, nb::object dtype) { return NewArray(std::move(shape), std::move(dtype)).make(); }, nb::arg("shape"),
        nb::arg("dtype"));
    m.def("get_num_threads", &get_num_threads);
    m.def("set_num_threads", &set_num_threads, nb::arg("n"));
    m.def("release_memory", &release_blocks);
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const char* const* name = kernel_names(); *name; ++name) names.emplace_back(*name);
        return names;
    });
    m.def("instruction_set", [] { return std::string(kernels().name); });
    m.def(
        "use_instruction_set",
        [](const std::string& name) {
            const Kernels* found = find_kernels(name.c_str());
            if (found) use_kernels(*found);
            return found != nullptr;
        },
        nb::arg("name"));
}
