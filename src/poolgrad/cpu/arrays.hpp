// Arrays of NumPy: where their memory is, and how results are made. The buffer protocol and np.ndarray do the same, but take as long
// as a small kernel. What is declared here is NumPy's binary interface: every extension that was compiled since NumPy 1.7 relies on
// it, so that nothing of NumPy is needed to build. With a NumPy that has another one the slower ways are taken.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <iterator>
#include <new>
#include <stdexcept>
#include <vector>

#include "memory.hpp"

namespace poolgrad {

namespace nb = nanobind;

struct NumpyArray {
    PyObject_HEAD char* data;
    int ndim;
    Py_ssize_t* shape;
    Py_ssize_t* strides;
    PyObject* base;
    PyObject* dtype;
    int flags;
};

class Numpy {
public:
    static constexpr int contiguous = 0x1, aligned = 0x100, writeable = 0x400;

    void load() {
        const bool renamed = nb::hasattr(nb::module_::import_("numpy"), "_core");
        const nb::object capsule =
            nb::module_::import_(renamed ? "numpy._core._multiarray_umath" : "numpy.core._multiarray_umath").attr("_ARRAY_API");
        void** const table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
        if (!table) throw nb::python_error();
        const unsigned version = reinterpret_cast<unsigned (*)()>(table[0])();
        since_2_ = version == 0x2000000;
        if (version != 0x1000009 && !since_2_) return;
        array_type_ = static_cast<PyTypeObject*>(table[2]);
        dtype_type_ = static_cast<PyTypeObject*>(table[3]);
        new_array_ = reinterpret_cast<NewArray>(table[94]);
        set_base_ = reinterpret_cast<SetBase>(table[282]);
    }

    // The object as an array; null if it is anything else, a subclass included.
    const NumpyArray* array(PyObject* object) const { return Py_TYPE(object) == array_type_ ? reinterpret_cast<const NumpyArray*>(object) : nullptr; }
    bool is_dtype(PyObject* object) const { return dtype_type_ && PyObject_TypeCheck(object, dtype_type_); }
    Py_ssize_t itemsize(PyObject* dtype) const {
        return since_2_ ? reinterpret_cast<const Dtype2*>(dtype)->itemsize : reinterpret_cast<const Dtype1*>(dtype)->itemsize;
    }
    // A new contiguous array over memory that its owner keeps.
    nb::object make(nb::object dtype, int ndim, const Py_ssize_t* shape, void* data, nb::object owner) const {
        constexpr int flags = contiguous | aligned | writeable;
        nb::object made = nb::steal(new_array_(array_type_, dtype.release().ptr(), ndim, shape, nullptr, data, flags, nullptr));
        if (!made.is_valid() || set_base_(made.ptr(), owner.release().ptr()) != 0) throw nb::python_error();
        return made;
    }

private:
    using NewArray = PyObject* (*)(PyTypeObject*, PyObject*, int, const Py_ssize_t*, const Py_ssize_t*, void*, int, PyObject*);
    using SetBase = int (*)(PyObject*, PyObject*);
    struct Dtype1 {
        PyObject_HEAD PyTypeObject* type;
        char letters[4];
        int number, itemsize;
    };
    struct Dtype2 {
        PyObject_HEAD PyTypeObject* type;
        char letters[4];
        int number;
        uint64_t flags;
        Py_ssize_t itemsize;
    };
    PyTypeObject *array_type_ = nullptr, *dtype_type_ = nullptr;
    NewArray new_array_ = nullptr;
    SetBase set_base_ = nullptr;
    bool since_2_ = false;
};

inline Numpy numpy;

// Memory that belongs to an array: an object that Python sees, as simple as possible because every result has one.
struct PyBlock {
    PyObject_HEAD Block block;

    static nb::object make(size_t bytes) {
        const Block block = take_block(bytes);
        PyBlock* const made = PyObject_New(PyBlock, type);
        if (!made) {
            give_block(block);
            throw nb::python_error();
        }
        made->block = block;
        return nb::steal(reinterpret_cast<PyObject*>(made));
    }
    static void make_type() {
        static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                      {Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer)},
                                      {Py_tp_doc, const_cast<char*>("Memory of a result.")},
                                      {0, nullptr}};
        static PyType_Spec spec = {"poolgrad.cpu._kernels.Block", sizeof(PyBlock), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
        type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
        if (!type) throw nb::python_error();
    }
    static inline PyTypeObject* type = nullptr;

private:
    static int getbuffer(PyObject* self, Py_buffer* view, int flags) {
        const Block& block = reinterpret_cast<PyBlock*>(self)->block;
        return PyBuffer_FillInfo(view, self, block.data, static_cast<Py_ssize_t>(block.bytes), 0, flags);
    }
    static void dealloc(PyObject* self) {
        PyTypeObject* const type = Py_TYPE(self);
        give_block(reinterpret_cast<PyBlock*>(self)->block);
        PyObject_Free(self);
        Py_DECREF(type);
    }
};

// How to make arrays of a shape and a dtype, with undefined contents.
class NewArray {
public:
    NewArray(nb::tuple shape, nb::object dtype) : shape_(std::move(shape)), dtype_(std::move(dtype)), known_(numpy.is_dtype(dtype_.ptr())) {
        if (shape_.size() > std::size(sizes_)) throw std::invalid_argument("too many dimensions");
        bytes_ = known_ ? static_cast<size_t>(numpy.itemsize(dtype_.ptr())) : nb::cast<size_t>(dtype_.attr("itemsize"));
        for (size_t i = 0; i < shape_.size(); ++i) {
            sizes_[i] = nb::cast<Py_ssize_t>(shape_[i]);
            if (sizes_[i] < 0 || __builtin_mul_overflow(bytes_, static_cast<size_t>(sizes_[i]), &bytes_)) throw std::bad_alloc();
        }
    }
    nb::object make() const {
        nb::object owner = PyBlock::make(bytes_);
        void* const data = reinterpret_cast<const PyBlock*>(owner.ptr())->block.data;
        if (!known_) return nb::module_::import_("numpy").attr("ndarray")(shape_, dtype_, owner);
        return numpy.make(dtype_, static_cast<int>(shape_.size()), sizes_, data, std::move(owner));
    }

private:
    nb::tuple shape_;
    nb::object dtype_;
    bool known_;
    size_t bytes_;
    Py_ssize_t sizes_[64];
};

// The same, for once, with a dtype of NumPy's own.
inline nb::object new_array(const std::vector<int64_t>& shape, nb::object dtype) {
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
    size_t bytes = static_cast<size_t>(numpy.itemsize(dtype.ptr()));
    for (const int64_t size : shape)
        if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) throw std::bad_alloc();
    nb::object owner = PyBlock::make(bytes);
    void* const data = reinterpret_cast<const PyBlock*>(owner.ptr())->block.data;
    return numpy.make(std::move(dtype), static_cast<int>(shape.size()), reinterpret_cast<const Py_ssize_t*>(shape.data()), data, std::move(owner));
}

}  // namespace poolgrad
