"""The survey's equations in LaTeX, as they are right; the numbers are those of `rc.survey()`."""

EQUATIONS = {
    "1": [r"h_t = f\left(h_{t-1}\right)"],
    "2": [r"h_t = f\left(h_{t-1}, x_t\right)"],
    "3–4": [r"h_t = \tanh\left(W\,h_{t-1} + U\,x_t + b_i\right)"],
    "5": [r"y_t = V\,h_t + b_y"],
    "6": [r"\hat{y}_t = \mathrm{softmax}\left(y_t\right)"],
    "7": [r"L = \sum_{t} L_t"],
    "8–9": [
        r"\frac{dL}{dy_t} = y_t - d_t",
        r"\frac{dL}{dy_t} = \hat{y}_t - d_t",
    ],
    "10–11": [
        r"\delta_t = V^{\top}\,\frac{dL}{dy_t} + "
        r"\left(\frac{\partial h_{t+1}}{\partial h_t}\right)^{\top}\,\delta_{t+1}"
    ],
    "12–15": [
        r"\frac{\partial h_{t+1}}{\partial h_t} = D_{t+1}\,W",
        r"D_t = \mathrm{diag}\left(1 - h_t \odot h_t\right)",
    ],
    "16": [r"\delta_T = V^{\top}\,\frac{dL}{dy_T}"],
    "17": [r"\frac{dL}{dV} = \sum_{t} \frac{dL}{dy_t}\,h_t^{\top}"],
    "18–19": [
        r"\frac{dL}{dW} = \sum_{t} \mathrm{vec}^{-1}\left(\left(\frac{\partial^{+} h_t}{\partial W}\right)^{\top}\,"
        r"\delta_t\right) = \sum_{t} D_t\,\delta_t\,h_{t-1}^{\top}"
    ],
    "20": [r"\frac{dL}{dU} = \sum_{t} D_t\,\delta_t\,x_t^{\top}"],
    "21": [r"\frac{dL}{db_i} = \sum_{t} D_t\,\delta_t"],
    "22": [r"\frac{dL}{db_y} = \sum_{t} \frac{dL}{dy_t}"],
    "23–24": [
        r"\frac{dL_T}{d\theta} = \sum_{t} \frac{\partial L_T}{\partial h_T}\,\frac{\partial h_T}{\partial h_t}\,"
        r"\frac{\partial^{+} h_t}{\partial \theta}",
        r"\frac{\partial h_T}{\partial h_t} = D_T\,W\,D_{T-1}\,W \cdot \cdot \cdot D_{t+1}\,W",
    ],
    "25": [r"W = A\,\Lambda\,A^{-1}"],
    "26": [r"h_t = \tanh\left(\left(W + I\right)\,h_{t-1} + U\,x_t + b_i\right)"],
    "27": [r"h_t = \tanh\left(\sum_{k} W_k\,h_{t-k} + U\,x_t + b_i\right)"],
    "28": [
        r"h_t = \left(1 - \frac{1}{\tau}\right)\,h_{t-1} + \frac{1}{\tau}\,"
        r"\tanh\left(W\,h_{t-1} + U\,x_t + b_i\right)"
    ],
    "29–30": [r"i_t = \sigma\left(W_i\,h_{t-1} + U_i\,x_t + p_i \odot c_{t-1} + b_i\right)"],
    "31": [r"f_t = \sigma\left(W_f\,h_{t-1} + U_f\,x_t + p_f \odot c_{t-1} + b_f\right)"],
    "32": [r"o_t = \sigma\left(W_o\,h_{t-1} + U_o\,x_t + p_o \odot c_t + b_o\right)"],
    "33": [r"\tilde{c}_t = \tanh\left(W_c\,h_{t-1} + U_c\,x_t + b_c\right)"],
    "34": [r"c_t = f_t \odot c_{t-1} + i_t \odot \tilde{c}_t"],
    "35": [r"h_t = o_t \odot \tanh\left(c_t\right)"],
    "36": [r"y_t = V\,h_t + b_y"],
    "37–39": [
        r"i_t = \sigma\left(W_i\,h_{t-1} + U_i\,x_t + b_i\right)",
        r"f_t = \sigma\left(W_f\,h_{t-1} + U_f\,x_t + b_f\right)",
        r"o_t = \sigma\left(W_o\,h_{t-1} + U_o\,x_t + b_o\right)",
    ],
    "40–42": [
        rf"{gate}_t = \sigma\left(W_{gate}\,h_{{t-1}} + U_{gate}\,x_t + p_{gate} \odot c_{{{c}}} + b_{gate} + "
        rf"R_{{{gate}i}}\,i_{{t-1}} + R_{{{gate}f}}\,f_{{t-1}} + R_{{{gate}o}}\,o_{{t-1}}\right)"
        for gate, c in (("i", "t-1"), ("f", "t-1"), ("o", "t"))
    ],
    "43": [r"r_t = \sigma\left(W_r\,h_{t-1} + U_r\,x_t + b_r\right)"],
    "44": [r"z_t = \sigma\left(W_z\,h_{t-1} + U_z\,x_t + b_z\right)"],
    "45": [r"\tilde{h}_t = \tanh\left(W_c\,\left(r_t \odot h_{t-1}\right) + U_c\,x_t + b_c\right)"],
    "46": [r"h_t = \left(1 - z_t\right) \odot h_{t-1} + z_t \odot \tilde{h}_t"],
    "47–49": [
        r"f_t = \sigma\left(W_f\,h_{t-1} + U_f\,x_t + b_f\right)",
        r"\tilde{h}_t = \tanh\left(W_c\,\left(f_t \odot h_{t-1}\right) + U_c\,x_t + b_c\right)",
        r"h_t = \left(1 - f_t\right) \odot h_{t-1} + f_t \odot \tilde{h}_t",
    ],
    "50–51": [
        r"\vec{h}_t = \tanh\left(\vec{W}\,\vec{h}_{t-1} + \vec{U}\,x_t + \vec{b}\right)",
        r"\overleftarrow{h}_t = \tanh\left(\overleftarrow{W}\,\overleftarrow{h}_{t+1} + \overleftarrow{U}\,x_t + "
        r"\overleftarrow{b}\right)",
    ],
    "52": [r"y_t = \vec{V}\,\vec{h}_t + \overleftarrow{V}\,\overleftarrow{h}_t + b_y"],
    "53": [r"\mathrm{ELMo}_t = \gamma\,\sum_{l=0}^{L} s_l\,h_t^{(l)}"],
}
