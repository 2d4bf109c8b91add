// Calls that were made before. To check a call and to find its kernels takes Python many times as long as a small kernel runs. So
// Python does it once: it decides what is right, and says what to do should the same call come again. Here a call is only
// recognised, by the shapes and dtypes of its arrays and by the values of all other arguments, and then done. What is unusual
// (subclasses, numbers that are not Python's own, a kernel that declines) takes the way through Python again.
//
// All of it runs under the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays.hpp"

namespace poolgrad {

inline nb::object called(nb::handle callable, PyObject* const* arguments, size_t count) {
    nb::object answer = nb::steal(PyObject_Vectorcall(callable.ptr(), arguments, count, nullptr));
    if (!answer.is_valid()) throw nb::python_error();
    return answer;
}

// What a call does: results are made, kernels run on them. Arrays have numbers, those that are given first.
class Program {
public:
    // results: (shape, dtype) of each. steps: (kernel, arguments, what it returns if all is well); arrays are lists of their number.
    // outputs: the numbers of those that are returned. outputs_type: what several become, else None.
    Program(size_t given, const nb::list& results, const nb::list& steps, const nb::list& outputs, nb::object outputs_type)
        : given_(given),
          outputs_type_(std::move(outputs_type)) {
        for (nb::handle result : results) results_.emplace_back(nb::cast<nb::tuple>(result[0]), nb::borrow(result[1]));
        for (nb::handle step : steps) {
            const nb::tuple arguments = nb::cast<nb::tuple>(step[1]);
            if (arguments.size() > most) throw std::invalid_argument("a kernel has too many arguments");
            Step& added = steps_.emplace_back(Step{nb::borrow(step[0]), {}, nb::borrow(step[2])});
            for (nb::handle argument : arguments) {
                const bool array = nb::isinstance<nb::list>(argument);
                added.arguments.push_back(array ? Argument{nb::object(), nb::cast<size_t>(argument[0])} : Argument{nb::borrow(argument), 0});
            }
        }
        for (nb::handle output : outputs) outputs_.push_back(nb::cast<size_t>(output));
        if (given_ + results_.size() > most || outputs_.size() > most) throw std::invalid_argument("a call has too many arrays");
    }

    // The outputs; nothing if a kernel declines.
    nb::object run(PyObject* const* given) const {
        nb::object made[most];
        PyObject *arrays[most], *arguments[most];
        std::copy_n(given, given_, arrays);
        for (size_t i = 0; i < results_.size(); ++i) arrays[given_ + i] = (made[i] = results_[i].make()).ptr();
        for (const Step& step : steps_) {
            for (size_t i = 0; i < step.arguments.size(); ++i)
                arguments[i] = step.arguments[i].value.is_valid() ? step.arguments[i].value.ptr() : arrays[step.arguments[i].array];
            const nb::object answer = called(step.kernel, arguments, step.arguments.size());
            if (!answer.equal(step.expected)) return nb::object();
        }
        if (outputs_type_.is_none()) return nb::borrow(arrays[outputs_[0]]);
        for (size_t i = 0; i < outputs_.size(); ++i) arguments[i] = arrays[outputs_[i]];
        return called(outputs_type_, arguments, outputs_.size());
    }

    static constexpr size_t most = 16;   // arrays of a call, arguments of a kernel

private:
    struct Argument {
        nb::object value;   // none here: an array
        size_t array;
    };
    struct Step {
        nb::object kernel;
        std::vector<Argument> arguments;
        nb::object expected;
    };
    size_t given_;
    std::vector<NewArray> results_;
    std::vector<Step> steps_;
    std::vector<size_t> outputs_;
    nb::object outputs_type_;
};

// The calls of one operator.
class Calls {
public:
    // kinds: a letter per argument. "a": an array that is computed with; "i": known by its identity; "v": known by its value.
    // through_python(*arguments) returns a plan and the result, next_time(plan, *arguments) what to do next time: a Program, a callable
    // that gets the arrays "a", or None for neither. codes: the numbers of the dtypes. most_kept: how many calls; longest_kept: how
    // many elements of a value.
    Calls(std::string kinds, nb::object through_python, nb::object next_time, nb::dict codes, size_t most_kept, size_t longest_kept)
        : kinds_(std::move(kinds)),
          through_python_(std::move(through_python)),
          next_time_(std::move(next_time)),
          codes_(std::move(codes)),
          most_kept_(most_kept),
          longest_kept_(static_cast<Py_ssize_t>(longest_kept)) {}

    nb::object call(PyObject* const* arguments, size_t count) {
        if (count != kinds_.size()) throw nb::type_error("wrong number of arguments");
        if (!recognise(arguments)) return nb::borrow(called(through_python_, arguments, count)[1]);
        const auto found = known_.find(key_);
        if (found == known_.end()) return learn(arguments);
        const nb::object next_time = found->second.next_time;   // another thread may forget it while this one computes
        PyObject* arrays[Program::most];
        std::copy(arrays_.begin(), arrays_.end(), arrays);
        const Program* const program = found->second.program;
        if (!program) return called(next_time, arrays, arrays_.size());
        try {
            if (nb::object outputs = program->run(arrays); outputs.is_valid()) return outputs;
        } catch (const std::exception&) {   // said better below
        }
        return nb::borrow(called(through_python_, arguments, count)[1]);
    }

private:
    struct Known {
        nb::object next_time;
        const Program* program;            // if it is one
        std::vector<nb::object> objects;   // known by their identity: kept, so that no other object gets their address
    };
    struct Hash {
        size_t operator()(const std::vector<uint64_t>& words) const {
            uint64_t hash = 0;
            for (const uint64_t word : words) hash = (std::rotl(hash, 5) ^ word) * 0x9E3779B97F4A7C15;
            return hash ^ hash >> 32;
        }
    };
    enum Kind : uint64_t { none, boolean, integer, real, text, list, tuple, array, identity };

    std::string kinds_;
    nb::object through_python_, next_time_;
    nb::dict codes_;
    size_t most_kept_;
    Py_ssize_t longest_kept_;
    std::unordered_map<std::vector<uint64_t>, Known, Hash> known_;
    // Of the call at hand, until Python runs again.
    std::vector<uint64_t> key_;
    std::vector<PyObject*> arrays_, objects_;
    std::vector<std::pair<PyObject*, uint64_t>> dtypes_;   // codes_ by identity

    nb::object learn(PyObject* const* arguments) {
        const std::vector<uint64_t> key = key_;
        const nb::object answer = called(through_python_, arguments, kinds_.size());
        const nb::object plan = answer[0];
        std::vector<PyObject*> planned{plan.ptr()};
        planned.insert(planned.end(), arguments, arguments + kinds_.size());
        const nb::object next_time = called(next_time_, planned.data(), planned.size());
        if (!next_time.is_none() && recognise(arguments) && key_ == key) {   // nobody has changed a list meanwhile
            Known known{next_time, nb::isinstance<Program>(next_time) ? nb::inst_ptr<Program>(next_time) : nullptr, {}};
            for (PyObject* object : objects_) known.objects.push_back(nb::borrow(object));
            std::unordered_map<std::vector<uint64_t>, Known, Hash> forgotten;   // what is full forgets everything
            if (known_.size() >= most_kept_) std::swap(known_, forgotten);
            known_.insert_or_assign(key, std::move(known));
        }
        return answer[1];
    }

    // Makes the key of a call: words that no other call has. False if there is none.
    bool recognise(PyObject* const* arguments) {
        key_.clear();
        arrays_.clear();
        objects_.clear();
        for (size_t i = 0; i < kinds_.size(); ++i)
            if (!(kinds_[i] == 'a' ? data(arguments[i]) : kinds_[i] == 'i' ? object(arguments[i]) : value(arguments[i], 0))) return false;
        return true;
    }

    void word(Kind kind, int64_t number) { key_.push_back(static_cast<uint64_t>(number) << 4 | kind); }

    void bytes(const void* data, size_t count) {
        const size_t begin = key_.size();
        key_.resize(begin + (count + 7) / 8);
        if (count) std::memcpy(&key_[begin], data, count);
    }

    bool data(PyObject* object) {
        const NumpyArray* const a = numpy.array(object);
        if (!a || arrays_.size() == Program::most || !head(*a)) return false;
        arrays_.push_back(object);
        return true;
    }

    bool object(PyObject* object) {
        if (PyUnicode_CheckExact(object)) return value(object, 0);
        word(identity, 0);
        key_.push_back(reinterpret_cast<uintptr_t>(object));
        objects_.push_back(object);
        return true;
    }

    bool value(PyObject* object, int depth) {
        if (PyLong_CheckExact(object)) {
            int overflow;
            const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
            word(integer, number);
            return !overflow && number < (1LL << 59) && number >= -(1LL << 59);
        }
        if (PyUnicode_CheckExact(object)) {
            Py_ssize_t length;
            const char* const letters = PyUnicode_AsUTF8AndSize(object, &length);
            if (!letters) PyErr_Clear();
            if (!letters || length > longest_kept_) return false;
            word(text, length);
            bytes(letters, static_cast<size_t>(length));
            return true;
        }
        if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
            const bool listed = PyList_CheckExact(object);
            const Py_ssize_t length = listed ? PyList_Size(object) : PyTuple_Size(object);
            if (length > longest_kept_ || depth == 4) return false;
            word(listed ? list : tuple, length);
            for (Py_ssize_t i = 0; i < length; ++i)
                if (!value(listed ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i), depth + 1)) return false;
            return true;
        }
        if (PyFloat_CheckExact(object)) {
            word(real, 0);
            key_.push_back(std::bit_cast<uint64_t>(PyFloat_AsDouble(object)));
            return true;
        }
        if (const NumpyArray* const a = numpy.array(object)) {
            Py_ssize_t size = numpy.itemsize(a->dtype);
            for (int i = 0; i < a->ndim; ++i) size *= a->shape[i];
            if (!(a->flags & Numpy::contiguous) || size > 8 * longest_kept_ || !head(*a)) return false;
            bytes(a->data, static_cast<size_t>(size));
            return true;
        }
        word(object == Py_None ? none : boolean, object == Py_True);
        return object == Py_None || PyBool_Check(object);
    }

    // Shape and dtype, and whether kernels can take the array as it is. That is never so for a dtype that is equal to ours but another
    // object, of an array that was unpickled for example: results have the dtype of the input itself.
    bool head(const NumpyArray& a) {
        constexpr int ready = Numpy::contiguous | Numpy::aligned;
        if (dtypes_.size() != codes_.size()) {
            dtypes_.clear();
            for (const auto& [dtype, code] : codes_) dtypes_.emplace_back(dtype.ptr(), nb::cast<uint64_t>(code));
        }
        const auto ours = std::find_if(dtypes_.begin(), dtypes_.end(), [&](const auto& known) { return known.first == a.dtype; });
        const bool same = ours != dtypes_.end();
        PyObject* const equal = same ? nullptr : PyDict_GetItemWithError(codes_.ptr(), a.dtype);
        if (!same && !equal) {
            PyErr_Clear();
            return false;
        }
        const int64_t code = same ? static_cast<int64_t>(ours->second) : nb::cast<int64_t>(nb::handle(equal));
        word(array, (code * 64 + a.ndim) * 2 + (same && (a.flags & ready) == ready));
        bytes(a.shape, static_cast<size_t>(a.ndim) * sizeof *a.shape);
        return true;
    }
};

// A function that makes these calls. It is Python's own kind of function, which costs least to call.
inline nb::object remembering(std::string kinds, nb::object through_python, nb::object next_time, nb::dict codes, size_t most_kept,
                              size_t longest_kept) {
    const auto call = [](PyObject* calls, PyObject* const* arguments, Py_ssize_t count) -> PyObject* {
        try {
            return nb::inst_ptr<Calls>(calls)->call(arguments, static_cast<size_t>(count)).release().ptr();
        } catch (nb::python_error& error) { error.restore(); } catch (const std::exception& error) {
            PyErr_SetString(PyExc_RuntimeError, error.what());
        }
        return nullptr;
    };
    using Function = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
    static PyMethodDef definition = {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(static_cast<Function>(call))), METH_FASTCALL,
                                     nullptr};
    const nb::object calls =
        nb::cast(new Calls(std::move(kinds), std::move(through_python), std::move(next_time), std::move(codes), most_kept, longest_kept));
    return nb::steal(PyCFunction_NewEx(&definition, calls.ptr(), nullptr));
}

}  // namespace poolgrad
